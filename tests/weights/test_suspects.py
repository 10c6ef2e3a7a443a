"""Which fit is taken: tails that the model has are no outliers, and near outliers of a model without them are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.known_location import Location, location
from support.known_location import draw as draw_location

import nsmbayes as nsm
from nsmbayes.priors import unconstrained
from nsmbayes.scatter import LocationScatter, fit_location_scatter
from nsmbayes.surrogates import Standardiser
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.suspects import find_suspects
from nsmbayes.weights import Excess

WIDTHS, SHARES = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([4.0, 2.0, 1.0, 0.5, 0.25])


class Tails(Location):
    """Location, and tails from those of a normal distribution to very heavy ones."""

    def mixture(self, t):
        logs = jax.nn.log_softmax(jnp.log(SHARES) - jnp.exp(-t[1]) * jnp.arange(5.0))
        return GaussianMixture(logs, jnp.full((5, 1), t[0]), jnp.asarray(WIDTHS**2)[:, None, None])


def suspects_of(x, seed, excess=Excess()):  # noqa: B008 (frozen)
    with jax.enable_x64(True):
        one = Standardiser(jnp.zeros(1), jnp.ones(1), False)
        two = Standardiser(jnp.zeros(2), jnp.ones(2), False)
        density = Tails(covariance=jnp.eye(1), scale_x=one, scale_theta=two)
        prior = unconstrained(nsm.GaussianPrior(np.zeros(2), np.array([9.0, 1.0])))
        return find_suspects(excess, prior, density, x, fit_location_scatter, seed)


def draw(tails, n, rng):
    shares = SHARES * np.exp(-np.exp(-tails) * np.arange(5))
    return (rng.choice(WIDTHS, n, p=shares / shares.sum()) * rng.standard_normal(n))[:, None]


@pytest.mark.slow
def test_genuine_tails_are_kept_and_outliers_without_tails_are_found():
    kept, lost = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = draw(2.0, 120, rng)
        kept.append(suspects_of(x, seed).factor.values)
        x = draw(-3.0, 120, rng)  # normal
        x[:12] = 6 + 0.5 * rng.standard_normal((12, 1))
        lost.append(suspects_of(x, seed).factor.values[:12])
    assert (np.array(kept) < 0.5).mean() <= 0.03  # tails up to sixteen times as wide as the bulk
    assert (np.array(lost) < 0.5).mean() > 0.8


def test_a_model_does_not_stretch_over_a_gap_to_outliers_on_both_sides():
    """Heavy tails could explain them, and do if outliers cost as much as they would without neighbours."""
    found, trusting = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = draw(1.0, 100, rng)
        x[:30] = np.where(rng.random((30, 1)) < 0.5, -8, 8) + 2 * rng.standard_normal((30, 1))
        found.append(suspects_of(x, seed).factor.values[:30].mean())
        trusting.append(suspects_of(x, seed, Excess(cost=5.0)).factor.values[:30].mean())
    assert np.mean(found) < 0.35
    assert np.mean(trusting) > 0.5


def test_what_is_uncertain_widens_and_what_is_not_does_not():
    """Of ten rows at three scales some may be the model's; of ten at thirty none can be."""
    near, far = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = draw(-3.0, 100, rng)
        x[:10] += 3
        near.append(suspects_of(x, seed).wider)
        x[:10] += 27
        far.append(suspects_of(x, seed))
    assert np.mean(near) > 1.15
    assert max(one.wider for one in far) < np.mean(near)
    assert max(one.factor.values[:10].max() for one in far) < 0.01
    assert min(one.factor.values[10:].mean() for one in far) > 0.97


@pytest.mark.parametrize(("d", "sd"), [(1, 1e3), (3, 1e3), (8, 1e2)])
def test_a_wide_prior_does_not_hide_the_model(d, sd):
    """Where no row is explained the likelihood that knows of outliers is flat: no draw of such a prior is near one."""
    density, prior = location(d), unconstrained(nsm.GaussianPrior(np.zeros(d), sd**2 * np.ones(d)))
    rng = np.random.default_rng(0)
    x = draw_location(density, sd / 2 * np.ones(d), 60, rng)
    x[:12] += 9
    with jax.enable_x64(True):
        found = find_suspects(Excess(), prior, density, x, fit_location_scatter, 0)
    assert found.explained
    assert found.factor.values[:12].max() < 0.1
    assert found.factor.values[12:].mean() > 0.95


@pytest.mark.parametrize("n", [60, 700])
def test_data_that_no_parameter_explains_are_weighted_by_distance(n):
    x = np.random.default_rng(0).uniform(-300, 300, (n, 1))
    found = suspects_of(x, 0)
    assert not found.explained
    assert (found.factor.values == 1).all()
    assert (found.wider, found.reach) == (1.0, 0.0)
    assert "weights are by distance alone" in found.describe()


def test_a_scatter_that_is_not_robust_stays_that_of_all_rows():
    """Outliers cannot be hidden from it by moving them away."""
    rng = np.random.default_rng(0)
    x = draw_location(location(1), np.zeros(1), 100, rng)
    x[:10] += 30
    sample = LocationScatter.from_scatter(x.mean(axis=0), np.atleast_2d(np.cov(x.T)), "sample")
    prior = unconstrained(nsm.GaussianPrior(np.zeros(1), np.ones(1)))
    with jax.enable_x64(True):
        found = find_suspects(Excess(), prior, location(1), x, lambda _: sample, 0)
    assert found.centre is sample
    assert found.factor.values[:10].max() < 0.1


def test_rows_that_count_without_a_regular_scatter_keep_that_of_all():
    rng, calls = np.random.default_rng(0), []
    x = draw_location(location(1), np.zeros(1), 100, rng)
    x[:20] += 12
    first = fit_location_scatter(x)

    def fit_centre(rows):
        calls.append(rows)
        if len(calls) > 1:
            raise nsm.InputError("no regular scatter")
        return first

    with jax.enable_x64(True):
        prior = unconstrained(nsm.GaussianPrior(np.zeros(1), np.ones(1)))
        found = find_suspects(Excess(), prior, location(1), x, fit_centre, 0)
    assert len(calls) == 2
    assert found.centre is first
    assert found.factor.values[:20].max() < 0.1
