"""Adaptive independence sampling: what chains of a cheap loss do to be effective, and populations of unequal stages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes._internal.precision import double_precision
from nsmbayes.samplers.independence import adapt, evaluation, resample, sample_independence
from nsmbayes.samplers.students import around

KEY = jax.random.key(0)


def log_prior(u, data):
    return -0.5 * jnp.sum(u**2) - 0.5 * len(u) * jnp.log(2 * jnp.pi)


def bent(u, data):
    """Its posterior is a thin, bent ridge."""
    return 3 * (u[1] - u[0] ** 2 + 1) ** 2 + (u[2] - u[1] ** 2) ** 2


def round_(u, data):
    return 0.5 * jnp.sum((u - data) ** 2)


def prior_draws(count, d):
    return np.random.default_rng(0).standard_normal((count, d))


def test_chains_of_a_cheap_loss_run_longer_where_few_draws_are_effective():
    options = {"beta": 4.0, "chains": 4, "draws": 250, "key": KEY}
    as_asked = sample_independence(log_prior, bent, prior_draws(300, 3), **options)
    thinned = sample_independence(log_prior, bent, prior_draws(300, 3), thin=True, **options)
    assert thinned.positions.shape == as_asked.positions.shape == (4, 250, 3)
    assert as_asked.ess_bulk.min() < 500 < thinned.ess_bulk.min()
    rng = np.random.default_rng(1)
    u = rng.standard_normal((1_000_000, 3))
    weights = np.exp(-4 * np.asarray(jax.vmap(lambda one: bent(one, None))(u)))
    expected = weights @ u / weights.sum()
    off = (thinned.flat.mean(axis=0) - expected) / thinned.flat.std(axis=0)
    np.testing.assert_allclose(off, 0, atol=0.15)


def assert_densities_are_those_of_the_mixture(population):
    sizes = np.asarray(population.stage_sizes)
    assert sizes.sum() == len(population.positions)
    assert len(sizes) == len(population.proposals)
    densities = [np.exp(one.log_prob(population.positions)) for one in population.proposals]
    np.testing.assert_allclose(np.exp(population.log_proposals), sizes / sizes.sum() @ np.stack(densities), rtol=1e-10)


@pytest.mark.parametrize("thin", [False, True])
def test_what_was_visited_counts_as_drawn_from_one_mixture(thin):
    """Of all proposals, each by its draws: with `thin`, the chains' own draws are a stage, and a larger one."""
    found = sample_independence(
        log_prior, bent, prior_draws(300, 3), beta=4.0, chains=4, draws=250, key=KEY, thin=thin
    ).visited
    assert found is not None
    assert_densities_are_those_of_the_mixture(found)
    assert (found.stage_sizes[-1] == 1000) is thin


@double_precision
def test_a_population_can_be_gone_on_from_with_stages_of_another_size():
    evaluate = evaluation(log_prior, round_, 1.0)
    rough = adapt(evaluate, np.zeros((200, 2)), beta=1.0, key=KEY, first=around(prior_draws(200, 2)), rough=True)
    assert rough.rough
    whole = adapt(evaluate, np.zeros((500, 2)), beta=1.0, key=KEY, before=rough)
    assert not whole.rough
    assert set(whole.stage_sizes) == {200, 500}
    assert whole.stage_sizes.count(500) >= 2
    assert_densities_are_those_of_the_mixture(whole)


@double_precision
def test_a_path_from_a_narrow_proposal_does_not_lead_by_way_of_the_prior():
    """Draws beside a narrow posterior, far narrower than the prior: a few stages are enough."""
    calls = []

    def narrow(u, data):
        return 0.5 * jnp.sum(((u - 0.3) / 0.01) ** 2)

    def evaluate(positions):
        calls.append(positions.std(axis=0).max())
        return evaluation(log_prior, narrow)(positions)

    beside = 0.25 + 0.01 * np.random.default_rng(3).standard_normal((60, 4))
    found = adapt(evaluate, np.zeros((400, 4)), beta=1.0, key=KEY, first=around(beside), quick=True)
    assert len(calls) <= 8
    assert max(calls) < 0.1  # the prior has 1
    np.testing.assert_allclose(resample(found, 1.0, 500).mean(axis=0), 0.3, atol=0.003)


def test_chains_that_do_not_agree_run_again_after_a_fit_to_what_they_have_tried():
    options = {"beta": 4.0, "chains": 4, "draws": 250, "key": KEY, "first": around(0.01 * prior_draws(300, 3))}
    found = sample_independence(log_prior, bent, prior_draws(300, 3), **options)
    assert found.positions.shape == (4, 250, 3)
    assert found.visited is not None
    assert_densities_are_those_of_the_mixture(found.visited)
