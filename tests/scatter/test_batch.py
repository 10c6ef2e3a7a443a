"""The batched estimators against scikit-learn's, and on data for which there is no scatter."""

import warnings
from itertools import combinations

import jax
import numpy as np
import pytest
from scipy.stats import chi2
from scipy.stats import f as f_distribution
from sklearn.covariance import MinCovDet

from nsmbayes.errors import InputError
from nsmbayes.scatter import _mcd_space, fit_batch, fit_location_scatter, fit_many, mcd_batch
from nsmbayes.scatter._consistency import consistency_factor, minimum_rows, support_size

KEY = jax.random.key(0)


def regular_datasets(b, n, d, seed):
    """Correlated Gaussian data, half of them with outliers, a quarter of them skewed."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((b, n, d)) @ rng.standard_normal((b, d, d))
    x[1::4] = np.exp(x[1::4] / 2)
    x[::2, : n // 10] += 20
    return x


def reference(x, seed=0):
    with warnings.catch_warnings():
        # Its determinant rises by rounding now and then, and it says so.
        warnings.filterwarnings("ignore", "Determinant has increased", RuntimeWarning)
        return MinCovDet(random_state=seed).fit(x)


def same(a, b, tolerance=1e-10):
    return np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.parametrize("n", [20, 21, 100, 101, 1000])
def test_one_column_is_scikit_learns(n):
    x = regular_datasets(40, n, 1, seed=n)
    location, scatter, ok = mcd_batch(x, KEY)
    assert ok.all()
    np.testing.assert_array_equal(location, np.median(x, axis=1))
    rng = np.random.default_rng(0)
    exact = 0
    for i in range(len(x)):
        agrees = same(scatter[i], reference(x[i]).covariance_)
        exact += agrees
        # Scikit-learn's own answer depends on the order of the observations and on rounding.
        tries = (reference(rng.permutation(x[i]) + shift).covariance_ for shift in 9 * rng.standard_normal(30))
        assert agrees or any(same(scatter[i], other, 1e-9) for other in tries)
    assert exact >= 32


def test_one_column_does_not_depend_on_order_sign_or_units():
    x = regular_datasets(200, 50, 1, seed=3)
    _, scatter, _ = mcd_batch(x, KEY)
    shuffled = np.random.default_rng(0).permuted(x, axis=1)
    for changed, factor in ((shuffled, 1), (-x, 1), (x + 0.37, 1), (1e-9 * x, 1e-18), (1e9 * x, 1e18)):
        np.testing.assert_allclose(mcd_batch(changed, KEY)[1], factor * scatter, rtol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(30, 2), (100, 2), (100, 3)])
def test_several_columns_are_no_worse_than_scikit_learn(n, d):
    x = regular_datasets(30, n, d, seed=10 * n + d)
    location, _, ok = mcd_batch(x, KEY)
    assert ok.all()
    np.testing.assert_array_equal(location, np.median(x, axis=1))
    log_det = np.array([raw_log_det(a) for a in x])
    fits = [reference(a) for a in x]
    theirs = np.array([np.linalg.slogdet(fit.raw_covariance_)[1] for fit in fits])
    assert (log_det <= theirs + 1e-6).all()
    assert (np.abs(log_det - theirs) < 1e-9).sum() >= 5


@pytest.mark.parametrize(("n", "d"), [(12, 2), (14, 3)])
def test_several_columns_by_the_book(n, d):
    """From the best of all subsets on; every point against the mean and covariance of the others, computed anew."""
    h = support_size(n, d)
    datasets = regular_datasets(6, n, d, seed=n)
    for x, scatter in zip(datasets, mcd_batch(datasets, KEY)[1], strict=True):

        def is_near(i, inside, share, x=x):
            others = x[inside & (np.arange(n) != i)]
            offset = x[i] - others.mean(axis=0)
            m = len(others)
            distance = offset @ np.linalg.solve(consistency_factor(d, share) * np.cov(others.T), offset)
            return distance * m * (m - d) / (d * (m**2 - 1)) < f_distribution.ppf(0.975, d, m - d)

        best = min(combinations(range(n), h), key=lambda c: np.linalg.slogdet(np.cov(x[list(c)].T))[1])
        inside = np.isin(np.arange(n), best)
        inside = np.array([inside[i] or is_near(i, inside, h / n) for i in range(n)])
        for _ in range(19):
            grown = np.array([is_near(i, inside, 0.975) for i in range(n)])
            inside = grown if grown.sum() >= h else inside
        np.testing.assert_allclose(scatter, consistency_factor(d, 0.975) * np.cov(x[inside].T), rtol=1e-9)


@pytest.mark.parametrize("d", [2, 6, 12])
@pytest.mark.parametrize("rows_per_column", [4, 10])
def test_good_rows_are_near_with_few_rows_per_column(d, rows_per_column):
    """Reweighted once with the quantiles of large samples, a quarter to a half of them lie beyond the quantile."""
    x = np.random.default_rng(d).standard_normal((60, rows_per_column * d, d))
    location, scatter, ok = mcd_batch(x, KEY)
    assert ok.all()
    offset = x - location[:, None]
    squares = np.einsum("bni,bij,bnj->bn", offset, np.linalg.inv(scatter), offset)
    assert (squares > chi2(d).ppf(0.975)).mean() < 0.08
    np.testing.assert_allclose(np.median(squares) / chi2(d).median(), 1, atol=0.15)


def raw_log_det(x):
    """log det of the covariance of the subset found, by the engine's own account."""
    h = support_size(*x.shape)
    centre = np.median(x, axis=0)
    scale = np.sort(np.abs(x - centre), axis=0)[h - 1]
    seed = np.asarray(jax.random.key_data(KEY)).tolist()
    z = ((x - centre) / scale)[None]
    return _mcd_space.mcd_space(z, np.random.default_rng(seed), 50)[2][0] + 2 * np.log(scale).sum()


def test_the_reported_determinant_is_that_of_a_subset_of_h_points():
    x = regular_datasets(1, 14, 2, seed=0)[0]
    h = support_size(14, 2)
    every = [np.linalg.slogdet(np.cov(x[list(c)].T, bias=True))[1] for c in combinations(range(14), h)]
    np.testing.assert_allclose(raw_log_det(x), min(every), rtol=1e-10)


def test_the_search_hardly_depends_on_chance():
    x = regular_datasets(40, 100, 3, seed=1)
    results = [mcd_batch(x, jax.random.key(seed))[1] for seed in range(3)]
    agree = [np.all([same(other[i], results[0][i], 1e-9) for other in results]) for i in range(len(x))]
    assert np.mean(agree) >= 0.9


def test_more_rows_than_the_search_looks_at(monkeypatch):
    x = regular_datasets(3, 900, 2, seed=2)
    _, full, _ = mcd_batch(x, KEY)
    monkeypatch.setattr(_mcd_space, "_SAMPLE", 300)
    _, sampled, ok = mcd_batch(x, KEY)
    assert ok.all()
    np.testing.assert_allclose(sampled, full, rtol=0.05, atol=0.05 * np.abs(full).max())


def test_a_dataset_does_not_see_its_companions(monkeypatch):
    x = regular_datasets(12, 40, 2, seed=4)
    _, together, _ = mcd_batch(x, KEY)
    monkeypatch.setattr(_mcd_space, "_CHUNK", 1)
    _, apart, _ = mcd_batch(x, KEY)
    np.testing.assert_allclose(apart, together, rtol=1e-12)
    np.testing.assert_allclose(mcd_batch(x[5:6], KEY)[1][0], together[5], rtol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("unit", [1e-150, 1e-9, 1e9, 1e150])
def test_units(d, unit):
    x = regular_datasets(5, 60, d, seed=5)
    location, scatter, _ = mcd_batch(x, KEY)
    scaled_location, scaled, ok = mcd_batch(unit * x, KEY)
    assert ok.all()
    np.testing.assert_allclose(scaled_location, unit * location, rtol=1e-12)
    np.testing.assert_allclose(scaled / unit / unit, scatter, rtol=1e-9, atol=1e-9 * np.abs(scatter).max())


@pytest.mark.parametrize("estimator", ["mcd", "mad", "sample"])
@pytest.mark.parametrize("d", [1, 2])
def test_ties_are_flagged_and_stay_finite(estimator, d):
    x = np.random.default_rng(0).standard_normal((4, 50, d))
    x[0, :, -1] = 3.0
    x[1, :40, -1] = 0.1
    if d == 2:
        x[2, :40, 1] = 0.3 * x[2, :40, 0] + 0.1
    location, scatter, ok = fit_batch(x, estimator, KEY)
    assert np.isfinite(location).all()
    assert np.isfinite(scatter).all()
    assert (np.linalg.eigvalsh(scatter) > 0).all()
    expected = {"mcd": [False, False, d == 1, True], "mad": [False, False, True, True]}
    assert ok.tolist() == expected.get(estimator, [False, True, True, True])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_bootstrap_resamples(d):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((60, d))
    fitted = fit_location_scatter(data)
    x = data[rng.integers(60, size=(50, 60))]
    _, scatter, ok = mcd_batch(x, KEY, warm_start=(fitted.location, fitted.scatter))
    assert ok.all()
    assert np.isfinite(scatter).all()
    spread = np.linalg.slogdet(scatter)[1] - np.linalg.slogdet(fitted.scatter)[1]
    assert np.abs(np.median(spread)) < 3


def test_warm_start_never_harms():
    x = regular_datasets(10, 60, 3, seed=6)
    cold = mcd_batch(x, KEY, starts=5)[1]
    warm = mcd_batch(x, KEY, starts=5, warm_start=(np.full(3, 100.0), np.diag([1e6, 1.0, 1e-6])))[1]
    assert np.mean([same(a, b, 1e-9) for a, b in zip(cold, warm, strict=True)]) >= 0.8


@pytest.mark.parametrize("estimator", ["mcd", "mad", "sample"])
@pytest.mark.parametrize("d", [1, 3])
def test_batch_and_single_fit_agree(estimator, d):
    x = regular_datasets(6, 50, d, seed=7)
    location, scatter, _ = fit_batch(x, estimator, jax.random.key(4))
    for i in range(len(x)):
        single = fit_location_scatter(x[i], estimator=estimator, seed=4)
        np.testing.assert_array_equal(single.location, location[i])
        np.testing.assert_allclose(single.scatter, scatter[i], rtol=1e-12)


def test_plain_estimators_are_the_textbooks():
    x = regular_datasets(5, 50, 2, seed=8)
    location, scatter, _ = fit_batch(x, "sample", KEY)
    np.testing.assert_allclose(location, x.mean(axis=1))
    np.testing.assert_allclose(scatter, [np.cov(a.T) for a in x])
    location, scatter, _ = fit_batch(x, "mad", KEY)
    mad = 1.482602218505602 * np.median(np.abs(x - np.median(x, axis=1)[:, None]), axis=1)
    np.testing.assert_allclose(scatter, [np.diag(m**2) for m in mad])
    np.testing.assert_array_equal(location, np.median(x, axis=1))


def test_consistency_factor_is_scikit_learns():
    for d, share in ((1, 0.51), (3, 0.52), (7, 0.975)):
        expected = share / chi2(d + 2).cdf(chi2(d).ppf(share))
        np.testing.assert_allclose(consistency_factor(d, share), expected, rtol=1e-12)


def test_consistent_for_gaussian_data():
    x = np.random.default_rng(0).standard_normal((20, 2000, 2))
    for estimator in ("mcd", "mad", "sample"):
        mean = fit_batch(x, estimator, KEY)[1].mean(axis=0)
        np.testing.assert_allclose(mean, np.eye(2), atol=0.05)


def test_old_style_keys_are_keys_too():
    x = regular_datasets(2, 30, 2, seed=9)
    np.testing.assert_array_equal(mcd_batch(x, jax.random.PRNGKey(0))[1], mcd_batch(x, KEY)[1])


@pytest.mark.parametrize("d", [1, 2, 4])
def test_too_few_rows(d):
    enough = np.random.default_rng(0).standard_normal((3, minimum_rows(d), d))
    mcd_batch(enough, KEY)
    with pytest.raises(InputError, match=rf"`x` has {minimum_rows(d) - 1} rows.*needs {minimum_rows(d)} or more"):
        mcd_batch(enough[:, 1:], KEY)
    with pytest.raises(InputError, match="'sample' estimator needs at least"):
        fit_batch(enough[:, :d], "sample", KEY)
    with pytest.raises(InputError, match="'mad' estimator needs at least 3"):
        fit_batch(enough[:, :2], "mad", KEY)


def test_bad_input_is_explained():
    x = np.zeros((2, 20, 1))
    with pytest.raises(InputError, match=r"`x` must have shape \(b, n, d\)"):
        mcd_batch(x[0], KEY)
    with pytest.raises(InputError, match="`x` contains NaN"):
        mcd_batch(x + np.nan, KEY)
    with pytest.raises(InputError, match="`estimator` must be one of"):
        fit_batch(x, "mve", KEY)
    with pytest.raises(InputError, match="`warm_start scatter`"):
        mcd_batch(np.random.default_rng(0).standard_normal((1, 20, 2)), KEY, warm_start=(np.zeros(2), -np.eye(2)))


@pytest.mark.parametrize("estimator", ["mcd", "mad", "sample"])
def test_many_data_sets_of_several_sizes(estimator):
    rng = np.random.default_rng(0)
    sets = [rng.standard_normal((n, 1)) for n in (30, 50, 30, 50)] + [np.zeros((30, 1)), np.zeros((1, 1))]
    found = fit_many(sets, estimator=estimator)
    assert found[4] is None
    assert found[5] is None
    for each, x in zip(found[:4], sets, strict=False):
        alone = fit_location_scatter(x, estimator=estimator)
        assert each is not None
        assert each.estimator == estimator
        for name in ("location", "scatter", "factor", "inverse"):
            np.testing.assert_allclose(getattr(each, name), getattr(alone, name), rtol=1e-12)
