"""A scatter guided by a known shape: Gaussian data, outliers that capture the determinant, and very few rows."""

import jax
import numpy as np
import pytest
from scipy.stats import chi2

from nsmbayes.errors import InputError
from nsmbayes.scatter import fit_guided, fit_location_scatter

D = 8


def squares(fitted, x):
    """Squared Mahalanobis distances."""
    offset = x - np.asarray(fitted.location)
    return np.einsum("ni,ij,nj->n", offset, np.linalg.inv(np.asarray(fitted.scatter)), offset)


def root(d):
    """A root of a covariance with moderate correlations."""
    return np.eye(d) + np.random.default_rng(1).standard_normal((d, d)) / np.sqrt(8)


def gaussian(n, d=D, seed=0):
    return 3 + np.random.default_rng(seed).standard_normal((n, d)) @ root(d).T


def cluster(x, share=0.3):
    """A tight group in place of the first rows, 8 standard deviations away."""
    x, m = x.copy(), round(share * len(x))
    rng = np.random.default_rng(len(x))
    direction = rng.standard_normal(x.shape[1])
    centre = 8 * direction / np.linalg.norm(direction)
    x[:m] = 3 + (centre + 0.1 * rng.standard_normal((m, x.shape[1]))) @ root(x.shape[1]).T
    return x, m


def far(x, share=0.4):
    """Outliers a hundred times as far away as good rows, in every direction."""
    x, m = x.copy(), round(share * len(x))
    x[:m] = 3 + 100 * (x[:m] - 3)
    return x, m


TRUE = root(D) @ root(D).T
GUIDES = {"true": TRUE, "wrong": np.eye(D), "none": None}


@pytest.mark.parametrize("d", [2, 5, 12])
@pytest.mark.parametrize("rows_per_column", [2, 4, 10])
def test_good_rows_of_gaussian_data_are_near(d, rows_per_column):
    """By a guide of the true shape. With four rows in two columns 8 % lie beyond the 97.5 % quantile."""
    S = root(d) @ root(d).T
    found = np.array([squares(fit_guided(x, S), x) for x in (gaussian(rows_per_column * d, d, s) for s in range(30))])
    np.testing.assert_allclose(np.median(found) / chi2(d).median(), 1, atol=0.08)
    assert (found > chi2(d).ppf(0.975)).mean() < (0.12 if d == 2 else 0.08)


@pytest.mark.parametrize("guide", GUIDES)
def test_many_rows_have_their_own_shape_whatever_the_guide(guide):
    fitted = fit_guided(gaussian(100_000), GUIDES[guide])
    ratio = np.linalg.solve(TRUE, fitted.scatter)
    np.testing.assert_allclose(ratio, np.eye(D), atol=0.1)
    np.testing.assert_allclose(np.trace(ratio) / D, 1, atol=0.007)  # three standard errors of a median
    np.testing.assert_allclose(fitted.location, 3, atol=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_a_tight_cluster_captures_the_determinant_but_not_the_guided_scatter(seed):
    x, m = cluster(gaussian(100, seed=seed))
    edge = chi2(D).ppf(0.975)
    captured = squares(fit_location_scatter(x), x)
    assert (captured[m:] > edge).mean() > 0.5
    for guide in (TRUE, np.eye(D)):
        found = squares(fit_guided(x, guide), x)
        assert (found[:m] > edge).all()
        assert (found[m:] > edge).mean() < 0.25
        assert np.median(found[:m]) > 3 * np.median(found[m:])


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("seed", range(4))
def test_many_outliers_far_away_are_left_out(seed, guide):
    x, m = far(gaussian(100, seed=seed))
    found = squares(fit_guided(x, GUIDES[guide]), x)
    assert np.sqrt(found[:m]).min() > 50
    assert (found[m:] > chi2(D).ppf(0.975)).mean() < 0.2
    np.testing.assert_allclose(np.median(found[m:]) / chi2(D).median(), 1, atol=0.15)


@pytest.mark.parametrize("guide", GUIDES)
def test_how_far_away_outliers_are_does_not_matter(guide):
    x, m = far(gaussian(100))
    near, beyond = (np.concatenate([size * x[:m], x[m:]]) for size in (1e4, 1e90))
    scatters = [fit_guided(each, GUIDES[guide]).scatter for each in (near, beyond)]
    np.testing.assert_allclose(*scatters, rtol=1e-9)


def test_only_the_shape_of_the_guide_counts():
    x = cluster(gaussian(60))[0]
    for unit in (1e-12, 1e12):
        np.testing.assert_allclose(fit_guided(x, unit * TRUE).scatter, fit_guided(x, TRUE).scatter, rtol=1e-9)


@pytest.mark.parametrize("guided", [True, False])
def test_columns_may_have_any_units(guided):
    x, units = gaussian(40), np.geomspace(1e-9, 1e9, D)
    plain = fit_guided(x, TRUE if guided else None)
    scaled = fit_guided(x * units, TRUE * np.outer(units, units) if guided else None)
    np.testing.assert_allclose(scaled.location, plain.location * units, rtol=1e-9)
    np.testing.assert_allclose(scaled.scatter / np.outer(units, units), plain.scatter, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("n", [3, 5, D])
def test_fewer_rows_than_columns(n):
    """The determinant does not exist here; the guide's shape is kept, at the size of the data."""
    x = gaussian(n)
    with pytest.raises(InputError, match=f"`x` has {n} rows"):
        fit_location_scatter(x)
    for unit in (1.0, 10.0):
        fitted = fit_guided(unit * x, TRUE)
        ratios = np.linalg.eigvals(np.linalg.solve(TRUE, fitted.scatter)).real / unit**2
        assert ratios.min() > 0.05
        assert ratios.max() < 5
    assert fitted.estimator == "guided"
    assert fitted.is_robust
    assert fitted.scatter.dtype == np.float64


def test_precision_does_not_follow_jax():
    x = gaussian(20)
    with jax.enable_x64(True):
        double = fit_guided(x, TRUE)
    np.testing.assert_array_equal(fit_guided(x, TRUE).scatter, double.scatter)


def test_ties_are_explained():
    x = gaussian(20)
    x[:15, 2] = 1.0
    with pytest.raises(InputError, match="more than half of the values in column 2 are the same"):
        fit_guided(x)
    fit_guided(x, TRUE)  # the guide has a scale for that column
    x[:15] = 1.0
    with pytest.raises(InputError, match="half of its rows are the same"):
        fit_guided(x, TRUE)


def test_bad_input_is_explained():
    x = gaussian(20)
    with pytest.raises(InputError, match="`x` needs at least 3 rows"):
        fit_guided(x[:2], TRUE)
    with pytest.raises(InputError, match=r"`x` has .* rows with NaN"):
        fit_guided(np.where(x > 4, np.nan, x), TRUE)
    with pytest.raises(InputError, match=r"`guide` must have shape \(8, 8\)"):
        fit_guided(x, np.eye(7))
    with pytest.raises(InputError, match="`guide` is not positive definite"):
        fit_guided(x, -TRUE)
    with pytest.raises(InputError, match="`guide` is singular"):
        fit_guided(x, np.ones((D, D)))


@pytest.mark.parametrize("seed", range(4))
def test_strongly_correlated_columns_do_not_matter_to_the_right_guide(seed):
    """The condition number is 400,000; the medians of the columns, moved by a cluster, are 100 away."""
    rng, d, m = np.random.default_rng(seed), 8, 30
    A = np.eye(d) + np.random.default_rng(0).standard_normal((d, d)) / np.sqrt(d)
    z = rng.standard_normal((100, d))
    direction = rng.standard_normal(d)
    z[:m] = 8 * direction / np.linalg.norm(direction) + 0.1 * z[:m]
    x = z @ A.T
    fitted = fit_guided(x, A @ A.T)
    offset = x - fitted.location
    squares = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(fitted.scatter), offset)
    assert (squares[:m] > chi2(d).ppf(0.975)).all()
    assert (squares[m:] > chi2(d).ppf(0.975)).mean() < 0.1
