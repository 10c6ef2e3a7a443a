"""Models under which observations may be outliers: against a slow version, and what each of them pays for."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t, norm, t

from nsmbayes.scatter import LocationScatter, fit_location_scatter
from nsmbayes.weights.accounts import Account, beside_outliers, whitened


def account_of(x):
    return Account.of(x, fit_location_scatter(x))


def slow(y, log_q, cost, clean):
    """The same with loops, for one model, with log densities in robust scales."""
    n, d = y.shape
    alone = multivariate_t(np.zeros(d), 100 * np.eye(d), df=1)
    cauchy = np.array([float(alone.pdf(row)) for row in y])
    kernel = np.array(
        [[np.mean([multivariate_normal(a, h**2 * np.eye(d)).pdf(b) for h in (0.2, 0.8, 3.2)]) for a in y] for b in y]
    )
    q, good = np.exp(log_q), np.zeros(n)
    for i in range(n):
        beside = (sum(kernel[i, j] for j in range(n) if j != i) + cauchy[i]) / n
        good[i] = 0.7 * q[i] / (0.7 * q[i] + 0.3 * beside)
    for step in range(7):
        left = 1 - good
        share = (good.sum() + 0.5) / (n + 1)
        r = np.zeros(n)
        for i in range(n):
            others = [j for j in range(n) if j != i]
            r[i] = (sum(left[j] * kernel[i, j] for j in others) + cauchy[i]) / (sum(left[j] for j in others) + 1)
        ours, theirs = share * q, (1 - share) * r
        good = ours / (ours + (np.exp(-cost) if step < 6 else 1) * theirs)
    k = left.sum()
    nats = np.log(ours + theirs).sum() - np.log(1 + k) - cost * k - 2 * max(k - n / 2, 0)
    all_good, some_bad = log_q.sum() + np.log(clean), nats + np.log(1 - clean)
    both = np.logaddexp(all_good, some_bad)
    return both, good + (1 - good) * np.exp(all_good - both)


@pytest.mark.parametrize("d", [1, 3])
def test_a_slow_and_obvious_version_says_the_same(d):
    rng = np.random.default_rng(d)
    x = rng.standard_normal((12, d))
    x[:3] += 6
    factor = np.linalg.cholesky(np.eye(d) + 0.3)
    centre = LocationScatter.from_scatter(0.2 * np.ones(d), factor @ factor.T, "sample")
    log_q = np.stack([multivariate_normal(m * np.ones(d), np.eye(d)).logpdf(x) for m in (0.0, 2.0)])
    found = Account.of(x, centre).explain(log_q, cost=0.3, clean=0.1)
    y = np.linalg.solve(factor, (x - 0.2).T).T
    for one, nats, good in zip(log_q, *found, strict=True):
        expected, believed = slow(y, one + np.linalg.slogdet(factor)[1], 0.3, 0.1)
        assert nats == pytest.approx(expected, rel=1e-5)  # products are in single precision
        np.testing.assert_allclose(good, believed, atol=1e-5)


def explain(account, log_q):
    return account.explain(np.atleast_2d(log_q), cost=0.2, clean=0.05)


def test_a_model_pays_for_the_gap_that_it_stretches_over():
    """Outliers on both sides, which a heavy-tailed model explains if it predicts rows between them and the bulk."""
    rng = np.random.default_rng(0)
    sides = np.repeat([-8.0, 8.0], 15)
    x = np.concatenate([rng.standard_normal(70), sides + 0.5 * rng.standard_normal(30)])[:, None]
    account = account_of(x)
    heavy = [t(df, scale=s).logpdf(x[:, 0]) for df in (1, 2, 4) for s in (1, 2, 4, 6)]
    trusting = max(logs.sum() for logs in heavy) + 100 * account.log_volume
    nats, good = explain(account, norm.logpdf(x[:, 0]))
    assert nats[0] > trusting + 10
    assert good[0, 70:].max() < 0.01
    assert good[0, :70].mean() > 0.95


def test_a_model_pays_for_leaving_out_its_own_tail():
    better = 0
    for seed in range(10):
        x = np.random.default_rng(seed).standard_t(2, (100, 1))
        thin = norm(scale=x[np.abs(x) < 4].std()).logpdf(x[:, 0])
        nats = explain(account_of(x), np.stack([t(2).logpdf(x[:, 0]), thin])).nats
        better += nats[0] > nats[1]
    assert better >= 8


def test_more_than_half_are_never_outliers():
    """Two groups of 45 and 55 rows: a model of the smaller one has to leave too many."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(45), 20 + rng.standard_normal(55)])[:, None]
    logs = np.stack([norm(at).logpdf(x[:, 0]) for at in (0.0, 20.0)])
    nats, good = explain(account_of(x), logs)
    assert nats[1] > nats[0] + 10
    assert good[1, :45].max() < 0.01


def test_units_add_the_same_to_every_model():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 2))
    log_q = multivariate_normal(np.zeros(2), np.eye(2)).logpdf(x)
    here = Account.of(x, LocationScatter.from_scatter(np.zeros(2), np.eye(2), "sample"))
    there = Account.of(1e3 * x, LocationScatter.from_scatter(np.zeros(2), 1e6 * np.eye(2), "sample"))
    shift = 2 * np.log(1e3)
    for one, other in zip(explain(there, log_q - shift), explain(here, log_q), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(there.beside, here.beside, rtol=1e-6)


def test_a_row_without_neighbours_is_not_impossible():
    x = np.concatenate([np.random.default_rng(0).standard_normal(49), [1e30]])[:, None]
    log_q = np.where(np.arange(50) < 49, norm.logpdf(x[:, 0]), -np.inf)
    account = account_of(x)
    nats, good = explain(account, np.stack([log_q, np.full(50, np.nan)]))
    assert np.isfinite(nats).all()
    assert good[0, 49] < 1e-6
    assert (account.beside > 0).all()


def test_rows_elsewhere_are_described_by_the_same_outliers():
    """What is left out of rows at their own places, without themselves, is what they would be as new rows."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(40), 9 + 0.2 * rng.standard_normal(10)])[:, None]
    centre, good = fit_location_scatter(x), np.repeat([1.0, 0.0], [40, 10])
    account = Account.of(x, centre)
    at = whitened(np.array([[9.0], [0.0]]), centre)
    near, far = np.log(beside_outliers(at, account.y, 1 - good))
    kernels = [norm(y, h).pdf(at[0, 0]) for y in account.y[40:, 0] for h in (0.2, 0.8, 3.2)]
    cauchy = t(1, scale=10).pdf(at[0, 0])
    assert near == pytest.approx(np.log((np.sum(kernels) / 3 + cauchy) / 11), rel=1e-6)
    assert far < near - 1
