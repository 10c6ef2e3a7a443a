"""Fits are compared by how well they and what they leave out account for all rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t, norm, t

from nsmbayes.scatter import LocationScatter, fit_location_scatter
from nsmbayes.weights.accounts import Account


def account_of(x):
    return Account.of(x, fit_location_scatter(x))


@pytest.mark.parametrize("d", [1, 3])
def test_the_account_is_that_of_a_slow_and_obvious_version(d):
    rng = np.random.default_rng(d)
    x, kept = rng.standard_normal((12, d)), rng.random(12)
    factor = np.linalg.cholesky(np.eye(d) + 0.3)
    centre = LocationScatter.from_scatter(0.2 * np.ones(d), factor @ factor.T, "sample")
    log_q = multivariate_normal(np.zeros(d), np.eye(d)).logpdf(x)
    y = np.linalg.solve(factor, (x - 0.2).T).T
    total = 0.0
    for i in range(12):
        kernels, left = 0.0, 0.0
        for j in range(12):
            if j != i:
                parts = [multivariate_normal(y[j], h**2 * np.eye(d)).pdf(y[i]) for h in (0.2, 0.8, 3.2)]
                kernels += (1 - kept[j]) * np.mean(parts)
                left += 1 - kept[j]
        beside = (kernels + multivariate_t(np.zeros(d), 100 * np.eye(d), df=1).pdf(y[i])) / (left + 1)
        share = (kept.sum() + 0.5) / 13
        total += np.log(share * np.exp(log_q[i]) * np.linalg.det(factor) + (1 - share) * beside)
    k = (1 - kept).sum()
    found = Account.of(x, centre).nats(log_q, kept)
    assert found == pytest.approx(total - np.log(1 + k) - 0.1 * k, rel=1e-10)


def test_a_model_pays_for_the_gap_that_it_stretches_over():
    """Outliers on both sides, which a heavy-tailed model explains if it predicts rows between them and the bulk."""
    rng = np.random.default_rng(0)
    sides = np.repeat([-8.0, 8.0], 15)
    x = np.concatenate([rng.standard_normal(70), sides + 0.5 * rng.standard_normal(30)])[:, None]
    account, good = account_of(x), np.arange(100) < 70
    heavy = [t(df, scale=s).logpdf(x[:, 0]) for df in (1, 2, 4) for s in (1, 2, 4, 6)]
    trusting = max(account.nats(logs, np.ones(100)) for logs in heavy)
    assert account.nats(norm.logpdf(x[:, 0]), good.astype(float)) > trusting + 10


def test_a_model_pays_for_leaving_out_its_own_tail():
    better = 0
    for seed in range(10):
        x = np.random.default_rng(seed).standard_t(2, (100, 1))
        kept = (np.abs(x[:, 0]) < 4).astype(float)
        thin = norm(scale=x[kept > 0].std()).logpdf(x[:, 0])
        better += account_of(x).nats(t(2).logpdf(x[:, 0]), np.ones(100)) > account_of(x).nats(thin, kept)
    assert better >= 8  # 9, and chance


def test_units_add_the_same_to_every_model():
    rng = np.random.default_rng(0)
    x, kept = rng.standard_normal((50, 2)), (rng.random(50) < 0.8).astype(float)
    log_q = multivariate_normal(np.zeros(2), np.eye(2)).logpdf(x)
    centre = LocationScatter.from_scatter(np.zeros(2), np.eye(2), "sample")
    scaled = LocationScatter.from_scatter(np.zeros(2), 1e6 * np.eye(2), "sample")
    here = Account.of(x, centre)
    there = Account.of(1e3 * x, scaled)
    shift = 2 * np.log(1e3)
    assert there.nats(log_q - shift, kept) == pytest.approx(here.nats(log_q, kept), abs=1e-8)
    np.testing.assert_allclose(there.log_beside, here.log_beside - shift, rtol=1e-10)


def test_a_row_without_neighbours_is_not_impossible():
    x = np.concatenate([np.random.default_rng(0).standard_normal(49), [1e30]])[:, None]
    log_q = np.where(np.arange(50) < 49, norm.logpdf(x[:, 0]), -np.inf)
    account = account_of(x)
    assert np.isfinite(account.nats(log_q, (np.arange(50) < 49).astype(float)))
    assert np.isfinite(account.log_beside).all()
