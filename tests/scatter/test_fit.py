import numpy as np
import pytest

from nsmbayes.errors import InputError
from nsmbayes.scatter import fit_location_scatter


def clean(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d)))


@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("shape", ["cluster", "scattered", "one column"])
def test_forty_percent_of_gross_outliers(d, shape):
    x = clean(100, d)
    before = fit_location_scatter(x)
    rng = np.random.default_rng(1)
    moved = x.copy()
    if shape == "cluster":
        moved[:40] += 1e6
    elif shape == "scattered":
        moved[:40] = 1e6 * rng.standard_cauchy((40, d))
    else:
        moved[:40, 0] -= 1e6
    for estimator in ("mcd", "mad"):
        after = fit_location_scatter(moved, estimator=estimator)
        assert after.is_robust
        assert np.abs(after.scatter).max() < 30 * np.abs(before.scatter).max()
        assert np.abs(after.location - before.location).max() < 5
    if d <= 3:  # with more columns the cluster leaves it no digits for the rest, and it says so
        sample = fit_location_scatter(moved, estimator="sample")
        assert not sample.is_robust
        assert np.abs(sample.scatter).max() > 1e9


@pytest.mark.parametrize("d", [1, 2, 3])
def test_as_many_outliers_as_the_subset_can_drop(d):
    n = 100
    outliers = n - int(np.ceil((n + d + 1) / 2))
    x = clean(n, d)
    x[:outliers] += 1e6
    assert np.abs(fit_location_scatter(x).scatter).max() < 50


@pytest.mark.parametrize("far", [1e20, 1e150, 1e300, 1.7e308])
@pytest.mark.parametrize("d", [1, 2])
def test_outliers_at_the_end_of_the_numbers(d, far):
    x = clean(100, d)
    x[:10] = far
    x[10:20] = -far
    near = x.copy()
    near[:20] = np.sign(near[:20]) * 1e9
    np.testing.assert_allclose(fit_location_scatter(x).scatter, fit_location_scatter(near).scatter, rtol=1e-9)
    x[20:], near[20:] = x[20:] / 8, near[20:] / 8
    np.testing.assert_allclose(fit_location_scatter(x).scatter, fit_location_scatter(near).scatter, rtol=1e-9)


@pytest.mark.parametrize("estimator", ["mcd", "sample"])
@pytest.mark.parametrize("seed", range(5))
def test_affine_equivariance(estimator, seed):
    rng = np.random.default_rng(seed)
    x = clean(80, 3, seed)
    x[:8] += 30
    A = np.array([[1e-3], [1.0], [1e3]]) * rng.standard_normal((3, 3))
    fitted = fit_location_scatter(x, estimator=estimator).scatter
    mapped = fit_location_scatter(x @ A.T + 10 * A.sum(axis=1), estimator=estimator).scatter
    unit = np.sqrt(np.diag(mapped))
    difference = (mapped - A @ fitted @ A.T) / np.outer(unit, unit)
    np.testing.assert_allclose(difference, 0, atol=1e-9)


@pytest.mark.parametrize("estimator", ["mcd", "mad", "sample"])
@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units(estimator, unit):
    x = clean(60, 2)
    fitted, scaled = (fit_location_scatter(u * x, estimator=estimator) for u in (1, unit))
    np.testing.assert_allclose(scaled.location, unit * fitted.location, rtol=1e-12)
    np.testing.assert_allclose(scaled.scatter, unit**2 * fitted.scatter, rtol=1e-9)
    np.testing.assert_allclose(scaled.factor, unit * fitted.factor, rtol=1e-9)


def test_a_large_offset_does_not_matter():
    x = clean(60, 2)
    np.testing.assert_allclose(fit_location_scatter(x + 1e9).scatter, fit_location_scatter(x).scatter, rtol=1e-5)


def test_repeatable_and_read_from_lists():
    x = clean(50, 3)
    first, second = fit_location_scatter(x, seed=3), fit_location_scatter(x.tolist(), seed=3)
    np.testing.assert_array_equal(first.scatter, second.scatter)
    assert first.scatter.dtype == np.float64
    assert first.estimator == "mcd"
    assert fit_location_scatter(x[:, 0]).dim == 1


CONSTANT = np.column_stack([clean(40, 1)[:, 0], np.full(40, 7.0)])
TIED = np.column_stack([clean(40, 1)[:, 0], np.r_[np.full(30, 0.5), np.arange(10.0)]])
DEPENDENT = clean(40, 2) @ np.array([[1, 0, 1], [0, 1, 1]])
LATTICE = np.column_stack([np.arange(40.0), np.r_[np.arange(30.0), np.arange(10.0) ** 2]])


@pytest.mark.parametrize(
    ("x", "estimator", "message"),
    [
        (CONSTANT, "mcd", "constant column: column 1 is 7 everywhere. Drop it"),
        (CONSTANT, "mad", "constant column: column 1"),
        (CONSTANT, "sample", "constant column: column 1"),
        (np.zeros(20), "mcd", "constant column: column 0"),
        (TIED, "mcd", "30 of the 40 values in column 1 are 0.5.*noise of one grid step"),
        (TIED[:, 1], "mcd", "30 of the 40 values in column 0 are 0.5"),
        (TIED, "mad", "30 of the 40 values in column 1 are 0.5"),
        (DEPENDENT, "mcd", r'columns 0, 1, 2 are linearly dependent.*Drop a redundant column.*scatter="mad"'),
        (DEPENDENT, "sample", "columns 0, 1, 2 are linearly dependent"),
        (LATTICE, "mcd", 'at least 22 of the 40 rows lie on one hyperplane.*grid step.*scatter="mad"'),
        (clean(5, 2), "mcd", '`x` has 5 rows.*2 columns needs 6 or more.*scatter="mad"'),
        (clean(2, 2), "sample", "`x` has 2 rows; the 'sample' estimator needs at least 3"),
        (clean(2, 2), "mad", "`x` has 2 rows; the 'mad' estimator needs at least 3"),
        (1e-200 * clean(40, 1), "mcd", "`x` spans .* in column 0.*Change its units"),
        (1e200 * clean(40, 2), "sample", "`x` spans .* in column 0.*Change its units"),
        (np.r_[np.nan, np.ones(20)], "mcd", "NaN or infinite"),
        (np.ones((2, 3, 4)), "mcd", r"shape \(n, d\)"),
        (clean(20, 1), "mve", "`estimator` must be one of 'mcd', 'mad', 'sample'"),
    ],
)
def test_no_silent_fallback(x, estimator, message):
    with pytest.raises(InputError, match=message):
        fit_location_scatter(x, estimator=estimator)


@pytest.mark.parametrize("x", [np.r_[1.0, 1.0, 2.0], np.column_stack([clean(5, 1), np.r_[1.0, 1.0, 1.0, 2.0, 3.0]])])
def test_no_estimator_is_advised_that_does_not_exist_either(x):
    with pytest.raises(InputError, match=r"Pass more observations\.$"):
        fit_location_scatter(x)
    with pytest.raises(InputError):
        fit_location_scatter(x, estimator="mad")


def test_the_named_remedies_work():
    for x in (DEPENDENT, LATTICE, clean(5, 2)):
        assert fit_location_scatter(x, estimator="mad").is_robust
    jitter = np.random.default_rng(0).uniform(0, 1, LATTICE.shape)
    assert fit_location_scatter(LATTICE + jitter).is_robust


def test_bad_seed_is_named():
    with pytest.raises(InputError, match="`seed`"):
        fit_location_scatter(clean(20, 1), seed=-1)
