"""Excess: kernel sums and smoothed models against brute force, chance, and posteriors of data with a cluster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal as normal
from support.known_location import draw, location

import nsmbayes as nsm
from nsmbayes.errors import InputError
from nsmbayes.losses import NLELoss
from nsmbayes.scatter import LocationScatter
from nsmbayes.suspects import explain_all, sharpened
from nsmbayes.weights import Excess
from nsmbayes.weights.accounts import Account
from nsmbayes.weights.excess import JOINT, LEVELS, Factor, Places, expected, smoothed, tied, view_columns
from nsmbayes.weights.projections import revealing_axes
from nsmbayes.weights.tails import Tail


def centre_of(x):
    return LocationScatter.from_scatter(np.median(x, axis=0), np.atleast_2d(np.cov(x.T)), "mcd")


def axes_of(density, thetas, x, centre):
    return revealing_axes(density, thetas, x, centre) if x.shape[1] > JOINT else None


@pytest.mark.parametrize("d", [1, 3, 6])
def test_kernel_sums_are_those_of_a_double_loop(d):
    x = np.random.default_rng(0).standard_normal((12, d)) @ np.diag(np.arange(1, d + 1))
    centre, levels = centre_of(x), (0.3, 0.5, 1.0)  # one is twice another
    found = smoothed(x, x, centre, levels, np.arange(12))
    assert found.columns.tolist() == view_columns(d).tolist()
    for v, column in enumerate(found.columns):
        keep = np.arange(d) if column < 0 else np.array([column])
        inverse = np.linalg.inv(np.asarray(centre.scatter)[np.ix_(keep, keep)])
        for level, h in enumerate(levels):
            for i in range(12):
                offsets = np.delete(x, i, axis=0)[:, keep] - x[i, keep]
                kernels = np.exp(-0.5 * np.einsum("ni,ij,nj->n", offsets, inverse, offsets) / h**2)
                assert found.others[v, level, i] == pytest.approx(kernels.sum(), rel=1e-9)


@pytest.mark.parametrize("d", [1, 3, 6])
def test_the_smoothed_model_is_its_convolution(d):
    """Against densities of SciPy with the kernel's covariance added; a forgotten smoothing would be noticed."""
    density, rng = location(d), np.random.default_rng(1)
    theta = rng.standard_normal((2, d))
    x = draw(density, theta[0], 20, rng)
    centre, levels = centre_of(x), (0.3, 1.0)
    found = expected(density, theta, Places.of(x, centre, levels), 7)
    C, scatter = np.asarray(density.covariance), np.asarray(centre.scatter)
    for v, column in enumerate(view_columns(d)):
        keep = np.arange(d) if column < 0 else np.array([column])
        own, kernel = C[np.ix_(keep, keep)], scatter[np.ix_(keep, keep)]
        for level, h in enumerate(levels):
            at_own_place = np.sqrt(np.linalg.det(2 * np.pi * h**2 * kernel))
            smooth = [
                0.5 * weight * normal(one[keep] + shift, factor * own + h**2 * kernel).pdf(x[:, keep])
                for one in theta
                for weight, shift, factor in ((0.7, 0, 1), (0.3, 1, 2))
            ]
            np.testing.assert_allclose(found[v, level], 7 * at_own_place * sum(smooth), rtol=1e-8)
            unsmoothed = normal(theta[0, keep], own).pdf(x[:, keep])
            assert not np.allclose(found[v, level], 7 * at_own_place * unsmoothed, rtol=0.01)


def believed(x, density, theta):
    """What each observation counts, if the parameter is known."""
    centre = centre_of(x)
    log_q = -np.asarray(jax.vmap(NLELoss(density, jnp.asarray(x)).each)(jnp.asarray(theta)))
    config = Excess()
    found = Account.of(x, centre).explain(log_q, cost=config.cost_in(x.shape[1]), clean=config.clean)
    return sharpened(found.good[0])


@pytest.mark.parametrize(("d", "n"), [(1, 30), (1, 300), (2, 100), (4, 100), (8, 100), (20, 100), (20, 300)])
def test_good_observations_hardly_ever_lose_half_their_weight(d, n):
    """Data of the model itself, 20 sets: at most 1 % of them, and a model of half the width loses more than that."""
    density, lost, narrow = location(d), [], []
    with jax.enable_x64(True):
        for seed in range(20):
            x = draw(density, np.zeros(d), n, np.random.default_rng([seed, d]))
            lost.append(believed(x, density, np.zeros((1, d))) < 0.5)
            narrow.append(believed(2.5 * x, density, np.zeros((1, d))) < 0.5)
    assert np.mean(lost) <= 0.01
    assert np.mean(narrow) > 0.03


def explained(values, x, density, thetas, rows=None, centre=None):
    """The evidence, by all rows or by some."""
    centre = centre_of(x) if centre is None else centre
    own = np.arange(len(x)) if rows is None else np.where(np.isin(np.arange(len(x)), rows), 0, -1)
    axes = axes_of(density, thetas, x if rows is None else x[rows], centre)
    observed = smoothed(x, x if rows is None else x[rows], centre, LEVELS, own, axes)
    lambdas = expected(density, thetas, Places.of(x, centre, LEVELS, axes), observed.total)
    return Factor.explained(values, observed, lambdas, Tail.of(density, thetas, x))


def test_a_lone_observation_is_a_matter_of_distance_and_a_group_is_not():
    density = location(1)
    x = draw(density, np.zeros(1), 60, np.random.default_rng(0))
    x[0], x[50:] = 30.0, -9.0
    with jax.enable_x64(True):
        values = believed(x, density, np.zeros((1, 1)))
        factor = explained(values, x, density, np.zeros((1, 1)))
    assert factor.found[0] == pytest.approx(1)
    assert factor.values[0] < 1e-6
    assert "too far for the model" in factor.evidence(0)
    assert "too many" not in factor.evidence(0)
    assert factor.values[50:].max() < 0.01
    assert factor.values[1:50].min() > 0.5
    assert factor.evidence(50).endswith("too many: 10.0 alike, 1.0 expected")
    assert tied(x)[[0, 50]].tolist() == [0, 10]
    assert factor._replace(values=np.full(60, 0.2)).evidence(5) == (
        "an outlier with probability 0.80, by all rows together"
    )


def test_a_stuck_column_is_named():
    """Ten rows of three columns, good but for the middle one."""
    density = location(3)
    x = draw(density, np.zeros(3), 80, np.random.default_rng(0))
    x[:10, 1] = -5.0
    with jax.enable_x64(True):
        factor = explained(believed(x, density, np.zeros((1, 3))), x, density, np.zeros((1, 3)))
    assert (factor.values[:10] < 0.1).all()
    assert (factor.column[:10] == 1).all()
    assert "in column 1" in factor.evidence(3)


def posterior_of(x, d, **options):
    prior = nsm.GaussianPrior(np.zeros(d), 9 * np.eye(d))
    method = nsm.NSMBayes(prior, noise_levels=(0.3, 1.0), draws=250, calibration=None, **options)
    method.append_simulations(prior.sample(200, seed=0), 400 * np.random.default_rng(0).standard_normal((200, d)))
    with jax.enable_x64(True):
        return method.adopt(location(d)).build_posterior(x, seed=0)


@pytest.mark.parametrize(("d", "place"), [(1, 5.5), (2, 9.0)])
def test_a_cluster_does_not_move_the_posterior(d, place):
    """Three of ten in a tight group outside the data. Without the factor it carries the posterior away."""
    x = draw(location(d), np.ones(d), 80, np.random.default_rng(5))
    x[:24] = place + 0.1 * np.random.default_rng(1).standard_normal((24, d))
    away = np.where(np.arange(80)[:, None] < 24, 90.0, x)  # what is so far counts next to nothing
    found, clean = posterior_of(x, d), posterior_of(away, d, excess=None)
    assert (np.abs(found.mean - clean.mean) / clean.std).max() < 0.5
    assert (found.std / clean.std).max() < 1.3
    assert found.weights[:24].max() < 0.1
    assert found.weights[24:].mean() > 0.9
    without = posterior_of(x, d, excess=None)
    assert (np.abs(without.mean - clean.mean) / clean.std).max() > 2
    said = found.outliers(24)
    assert {row.row for row in said} == set(range(24))
    assert all("too many" in row.reason for row in said)
    lost = int((found.suspects.factor.values < 0.5).sum())
    assert 24 <= lost <= 26
    assert f"{lost} of 80 observations are more than the model explains" in found.summary()


def test_clean_data_lose_nothing():
    x = draw(location(2), np.ones(2), 80, np.random.default_rng(5))
    found, without = posterior_of(x, 2), posterior_of(x, 2, excess=None)
    assert found.suspects.factor.values.mean() > 0.98
    np.testing.assert_allclose(found.mean, without.mean, atol=0.25 * without.std.max())
    np.testing.assert_allclose(found.std, without.std, rtol=0.15)


def test_more_observations_than_the_model_is_fitted_to():
    """1,500 observations, of which every tenth is stuck: all of these are found, in the subset or not."""
    x = draw(location(1), np.ones(1), 1500, np.random.default_rng(5))
    x[::10] = 7.0
    found = posterior_of(x, 1)
    assert found.suspects.factor.values[::10].max() < 0.1
    assert found.suspects.factor.values[np.arange(1500) % 10 > 0].mean() > 0.97


@pytest.mark.parametrize("d", [1, 3, 6])
def test_the_evidence_by_cells_and_blocks_is_that_of_every_row(d):
    """Compared with a subset, some rows in a cluster and one far out; in cells sums are off by three percent."""
    density, rng = location(d), np.random.default_rng(7)
    x = draw(density, np.zeros(d), 1300, rng)
    x[::9], x[3] = 4.0 + 0.1 * rng.standard_normal((145, d)), 1e9
    rows, thetas = np.sort(rng.permutation(1300)[:300]), 0.1 * rng.standard_normal((4, d))
    values, centre = np.ones(1300), centre_of(x[4:])
    exact = explained(values, x, density, thetas, rows, centre)
    found = explain_all(values, density, thetas, x, rows, centre)
    same = found.column == exact.column
    assert same.mean() > 0.97  # two columns can be as bad
    np.testing.assert_allclose(found.found[same], exact.found[same], rtol=0.03)
    np.testing.assert_allclose(found.expected[same], exact.expected[same], rtol=0.03)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"cost": -1.0}, "cost"), ({"clean": 1.0}, "clean"), ({"clean": -0.1}, "clean")],
)
def test_options_that_make_no_sense(options, said):
    with pytest.raises(InputError, match=said):
        Excess(**options)


def test_excess_must_be_an_excess():
    with pytest.raises(InputError, match="excess"):
        nsm.NSMBayes(nsm.GaussianPrior(np.zeros(1), np.ones(1)), excess=2.0)
