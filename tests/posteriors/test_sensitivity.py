from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from support.builders import conjugate, general, mdn
from support.exact import PRIOR, Exact

import nsmbayes as nsm
from nsmbayes.losses import Loss
from nsmbayes.posteriors.alternatives import of_target, other_levels
from nsmbayes.posteriors.sensitivity import Alternative, Variations, sensitivity_of
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import Target
from nsmbayes.weights import IMQ, PlateauIMQ


def by_name(found):
    return {(each.choice, each.change): each for each in found.changes}


def test_another_prior_by_draws_alone():
    """x ~ N(theta, 1), theta ~ N(0, 4): with the prior to the power p the precision is n + p / 4."""
    x = np.array([[1.0, -2.0], [2.0, -1.0]])
    found = Exact(draws=20_000).build_posterior(x).sensitivity()
    rows = by_name(found)
    mean, std = x.sum(axis=0) / 2.25, 2.25**-0.5
    for power in (0.5, 2.0):
        row, precision = rows["prior", f"^ {power:g}"], 2 + power / 4
        assert row.how == "reweighted"
        assert row.shift == pytest.approx((x.sum(axis=0) / precision - mean) / std, abs=0.02)
        assert row.ratio == pytest.approx(np.full(2, precision**-0.5 / std), rel=0.02)
    assert rows["learning rate", ""].how == "not known"
    assert "no loss that could be evaluated" in found.explain()


def test_in_closed_form_it_is_what_reweighting_says():
    """An independent route: 200,000 draws, reweighted by powers of the prior density and by the loss."""
    posterior = conjugate(2, beta=0.02, excess=None)
    rows, draws = by_name(posterior.sensitivity()), posterior.sample((200_000,), seed=0)
    logs = {
        ("prior", "^ 2"): posterior.prior.log_prob(draws),
        ("prior", "^ 0.5"): -0.5 * posterior.prior.log_prob(draws),
        ("learning rate", "x 2"): -posterior.beta * posterior.n * posterior.loss(draws),
    }
    for name, log in logs.items():
        weights = np.exp(log - log.max())
        weights /= weights.sum()
        mean = weights @ draws
        assert rows[name].how == "exact"
        assert rows[name].shift == pytest.approx((mean - posterior.mean) / posterior.std, abs=0.03)
        std = np.sqrt(weights @ (draws - mean) ** 2)
        assert rows[name].ratio == pytest.approx(std / posterior.std, rel=0.02)


def test_another_weight_in_closed_form_is_the_posterior_with_it():
    options = {"excess": None, "beta": 0.1}
    rows = by_name(conjugate(1, weight=IMQ(zeta=1.0), **options).sensitivity())
    one, other = (conjugate(1, weight=IMQ(zeta=zeta), **options) for zeta in (1.0, 2.0))
    assert rows["weight: zeta", "x 2"].shift == pytest.approx((other.mean - one.mean) / one.std)
    assert rows["weight: zeta", "x 2"].ratio == pytest.approx(other.std / one.std)


class Bowl(Loss):
    """(theta - m)' (theta - m) / 2, as one observation has it."""

    m: jax.Array

    def each(self, theta):
        return (0.5 * ((theta - self.m) ** 2).sum())[None]


def a_target(beta=2.0):
    with jax.enable_x64(True):
        return Target(unconstrained(PRIOR), Bowl(jnp.asarray([3.0, -1.0])), jnp.asarray(beta))


def gaussian(beta, power=1.0):
    precision = beta + power / 4
    return beta * np.array([3.0, -1.0]) / precision, np.full(2, precision**-0.5)


@pytest.mark.parametrize("reliable", [True, False])
def test_draws_with_a_loss_are_reweighted_or_sampled_again(reliable, monkeypatch):
    """Both routes against the closed form: prior ^ 2 and learning rates x 0.5, x 2 of a Gaussian posterior."""
    if not reliable:
        monkeypatch.setattr("nsmbayes.posteriors.sensitivity.trusted_k", lambda draws: -np.inf)
    mean, std = gaussian(2.0)
    positions = mean + std * np.random.default_rng(0).standard_normal((8000, 2))
    alternatives = list(of_target(a_target(), positions, 0, None, np.zeros((1, 2)), None))
    posterior = SimpleNamespace(mean=mean, std=std, label="Bowl", parameter_names=("a", "b"))
    rows = by_name(sensitivity_of(posterior, Variations(positions, alternatives), True))
    exact = {
        ("prior", "^ 2"): gaussian(2.0, 2.0),
        ("learning rate", "x 0.5"): gaussian(1.0),
        ("learning rate", "x 2"): gaussian(4.0),
    }
    for name, (other_mean, other_std) in exact.items():
        assert rows[name].how == ("reweighted" if reliable else "sampled again")
        assert rows[name].shift == pytest.approx((other_mean - mean) / std, abs=0.1)
        assert rows[name].ratio == pytest.approx(other_std / std, rel=0.07)


def test_the_ratio_of_another_weight_or_level_is_that_of_the_two_posteriors():
    """Up to a constant: log densities of posteriors that were built with the one and with the other."""
    levels = (0.2, 0.8, 3.2)
    theta = np.random.default_rng(1).standard_normal((12, 2))

    def built(zeta, noise_levels):
        weight = PlateauIMQ(radius=2.0, zeta=zeta)
        return general(mdn(1), weight, noise_levels=noise_levels, beta=0.7)

    one = built(1.0, levels)
    found = of_target(one.target, theta, 0, one.setting, one.dequantised, None)
    ratios = {(each.choice, each.change): each.log_ratios for each in found}
    others = {
        ("weight: zeta", "x 2"): built(2.0, levels),
        ("noise levels", "without 0.2"): built(1.0, levels[1:]),
        ("noise levels", "without 3.2"): built(1.0, levels[:-1]),
    }
    for name, other in others.items():
        difference = ratios[name]() - (other.log_prob(theta) - one.log_prob(theta))
        assert np.ptp(difference) < 1e-8
        assert np.ptp(ratios[name]()) > 1e-3
    assert {"weight: radius", "prior", "learning rate"} <= {choice for choice, _ in ratios}
    assert list(other_levels((0.0,))) == []


def hard(**options):
    """A change whose log ratios are far too spread for reweighting."""
    draws = np.random.default_rng(0).standard_normal((400, 1))
    posterior = SimpleNamespace(mean=np.zeros(1), std=np.ones(1), label="Hard", parameter_names=("a",))
    each = Alternative("prior", "^ 9", lambda: 20 * draws[:, 0] ** 2, **options)
    return lambda refit: sensitivity_of(posterior, Variations(draws, [each]), refit)


def test_what_cannot_be_trusted_says_so():
    def stuck():
        raise nsm.ConvergenceError("Stuck.")

    alone, failing = hard()(True), hard(moments=stuck)(True)
    for found in (alone, failing, hard(moments=stuck)(False)):
        (row,) = found.changes
        assert row.how == "not reliable"
        assert row.k > 0.7
        assert row.size == 0
        assert "+" not in found.table().splitlines()[1]
    assert "the draws cannot tell" in alone.explain()
    assert "sampled again without success. Stuck." in failing.explain()
    (row,) = hard(moments=lambda: (np.ones(1), np.full(1, 2.0)))(True).changes
    assert (row.how, row.shift[0], row.ratio[0]) == ("sampled again", 1.0, 2.0)


def test_what_it_says():
    """A parameter that moves is named; that widths follow the learning rate is no news."""
    draws = np.zeros((1, 2))
    posterior = SimpleNamespace(mean=np.zeros(2), std=np.ones(2), label="Any", parameter_names=("a", "b"))
    rate = Alternative("learning rate", "x 2", moments=lambda: (np.zeros(2), np.full(2, 0.7)))
    quiet = sensitivity_of(posterior, Variations(draws, [rate]), True)
    assert "None of the changes moves a parameter" in quiet.explain()
    prior = Alternative("prior", "^ 2", moments=lambda: (np.array([0.0, -0.8]), np.ones(2)))
    loud = sensitivity_of(posterior, Variations(draws, [rate, prior]), True)
    assert loud.explain().startswith("The posterior is sensitive to prior ^ 2 (b moves by -0.80 standard deviations")
    assert "largest 0.8" in repr(loud)


def test_what_it_shows():
    found = conjugate(1, noise_levels=(0.2, 0.8, 3.2), excess=None).sensitivity()
    lines = found.table().splitlines()
    assert len(lines) == 1 + len(found.changes)
    assert all("exact" in line for line in lines[1:])
    assert {each.choice for each in found.changes} >= {"prior", "learning rate", "noise levels", "weight: radius"}
    assert len(found.to_pandas()) == 2 * len(found.changes)
    fig = found.plot()
    assert isinstance(fig, Figure)
    assert len(fig.axes[0].get_yticks()) == len(found.changes)
    with pytest.raises(nsm.InputError, match="`refit` must be True or False"):
        conjugate(1, excess=None).sensitivity(refit="no")
