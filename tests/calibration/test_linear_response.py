"""Coverage by linear response, on a Gaussian location in twelve dimensions whose posteriors are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.calibration import SampledProblem
from nsmbayes.calibration.base import resample_counts
from nsmbayes.calibration.linear_response import linear_coverage
from nsmbayes.losses import Loss
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import AdaptiveSampler, Draws, Target

N, D = 80, 12
X = np.random.default_rng(1).standard_normal((N, D))
VARIANCE = np.array([0.01, 4.0] * (D // 2))  # of the prior: it dominates half of the parameters
BETAS = np.array([0.1, 0.25, 0.5, 0.7, 1.0])


class Squares(Loss):
    """With unit variance the calibrated rate is 1/2, the likelihood's; less where the prior holds parameters."""

    x: object

    def each(self, theta):
        return ((theta - self.x) ** 2).sum(axis=1)


def exact(beta, counts):
    precision = 1 / VARIANCE + 2 * beta * N
    return 2 * beta * (counts @ X) / precision, 1 / precision


def draws_at(beta, seed, size=(2000,)):
    mean, variance = exact(beta, np.ones(N))
    return mean + np.sqrt(variance) * np.random.default_rng(seed).standard_normal((*size, D))


def exact_coverage(beta, counts):
    reference, variance = exact(beta, np.ones(N))
    return (((exact(beta, counts)[0] - reference) ** 2 / variance).sum(axis=1) <= stats.chi2.ppf(0.95, D)).mean()


def test_coverage_at_every_rate_from_draws_at_one():
    counts = resample_counts(N, 400, np.random.default_rng(0))
    positions = draws_at(0.25, 3)
    losses = ((positions[:, None] - X) ** 2).sum(axis=2)
    differences = (counts - 1) @ losses.T
    found = linear_coverage(positions, differences, 0.25, np.diag(VARIANCE), BETAS, 0.95)
    expected = np.array([exact_coverage(beta, counts) for beta in BETAS])
    np.testing.assert_allclose(found, expected, atol=0.04)
    assert expected[0] > 0.99
    assert expected[-1] < 0.8
    # planted mistakes are seen: a prior that holds everything, another rate
    for wrong in (
        linear_coverage(positions, differences, 0.25, 1e-6 * np.eye(D), BETAS, 0.95),
        linear_coverage(positions, differences, 0.35, np.diag(VARIANCE), BETAS, 0.95),
    ):
        assert np.abs(wrong - expected).max() > 0.08


class Exact(SampledProblem):
    """The same problem with exact draws."""

    def __init__(self):
        prior = unconstrained(nsm.GaussianPrior(np.zeros(D), np.diag(VARIANCE)))
        super().__init__(prior, Squares(jnp.asarray(X)), N, AdaptiveSampler())

    def draw(self, beta, seed):
        positions = draws_at(beta, seed, (4, 500))
        draws = Draws(positions, np.ones(4), np.zeros(4, int), np.ones(D), np.full(D, 2000.0), np.full(D, 2000.0))
        return Target(self._prior, self._loss, jnp.asarray(beta)), draws


def test_many_parameters_are_calibrated_by_it(x64):
    """Reweighting leaves a handful of effective draws there, and would call every rate unknown."""
    result = nsm.calibration.PathCalibration().calibrate(Exact(), seed=0)
    counts = resample_counts(N, 200, np.random.default_rng(0))
    assert result.method == "bootstrap coverage by linear response"
    assert exact_coverage(result.beta, counts) == pytest.approx(0.95, abs=0.03)
    assert 0.3 < result.beta < 0.8
