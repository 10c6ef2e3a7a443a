"""What certificates keep fixed: that they say so, what happens when it is fitted again, and when they refuse."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from support.builders import GAUSSIAN, general, mdn
from support.reference import random_family

from nsmbayes.methods import NSMBayesConj
from nsmbayes.robustness.conjugate import steepest_rate


def tied(count, n=100):
    x = np.random.default_rng(0).standard_normal((n, 1))
    x[:count] = x[0]
    return x


@pytest.fixture(scope="module")
def method():
    return NSMBayesConj(GAUSSIAN, noise_levels=(0.0,)).adopt(random_family(1, 2))


@pytest.mark.parametrize("resolution", [0.1, 0.7, 0.99, 0.9999])
@pytest.mark.parametrize("k", [0.01, 1.0, 50.0])
def test_the_steepest_rate_is_that_on_both_sides_of_the_kink(resolution, k):
    limit = resolution**-2
    kink = (limit - 1) / k

    def g(at):
        return np.where(at < kink, k / (1 + k * at), (1 - 1 / limit) / np.maximum(at, 1e-300))

    for low in (0.0, 0.3 * kink, 0.999 * kink, 1.5 * kink):
        at = np.concatenate([np.linspace(low, 3 * kink, 10_001), kink * (1 + np.geomspace(1e-6, 10, 1000))])
        at = np.sort(at[at >= low])
        slope, level = steepest_rate(k, limit, low)
        slopes = np.abs(np.diff(g(at)) / np.maximum(np.diff(at), 1e-300))[np.diff(at) > 1e-9 * kink]
        assert slopes.max() <= slope * (1 + 1e-6)
        assert slopes.max() >= 0.95 * slope
        assert g(at).max() <= level * (1 + 1e-12)


def test_the_bound_is_for_the_weight_as_it_stands_and_a_refit_stands_beside_it(method):
    posterior = method.build_posterior(tied(0), beta=0.3)
    certificate = posterior.certificate
    assert "with the weight as it stands it changes the posterior by" in certificate.verdict
    assert f"with the weight refitted, {certificate.refitted:.3g} was the largest" in certificate.verdict
    other = posterior.x.copy()
    other[posterior.weights.argmin()] = posterior.location_scatter[0]
    refitted = method.build_posterior(other, beta=0.3)
    theta = posterior.sample((100_000,), seed=0)
    old, new = (multivariate_normal(p.mean, p.covariance).logpdf(theta) for p in (posterior, refitted))
    assert 0 < (old - new).mean() < 1.05 * certificate.refitted + 1e-3


def test_a_scatter_about_to_break_down_is_not_certified(method):
    assert method.build_posterior(tied(40), beta=0.3).certificate.robust
    for posterior in (method.build_posterior(tied(49), beta=0.3), general(mdn(1), x=tied(49))):
        assert posterior.certificate.failures == ("scatter",)
        assert "49 of the 100 values of column 0 are the same" in posterior.certificate.verdict
