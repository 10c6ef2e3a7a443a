import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.calibration import CalibrationStatus, SampledProblem
from nsmbayes.calibration.importance import reweighted_coverage
from nsmbayes.losses import Loss
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import AdaptiveSampler, Draws, Target


def test_reweighted_coverage_agrees_with_exact_posteriors():
    """Gaussian location: reweighting draws at the full data to a resample gives that resample's exact posterior.

    The coverage of 200 resamples, read off 20,000 draws, is within 0.03 of the exact one.
    """
    rng = np.random.default_rng(0)
    n, beta = 40, 0.3
    x = rng.standard_normal((n, 2))
    draws = x.mean(axis=0) + rng.standard_normal((20_000, 2)) / np.sqrt(2 * beta * n)
    losses = ((draws[:, None] - x) ** 2).sum(axis=2)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=200)
    coverage, ess = reweighted_coverage(draws, -beta * (counts - 1) @ losses.T, x.mean(axis=0), 0.9)
    means = counts @ x / n
    exact = (2 * beta * n * ((means - x.mean(axis=0)) ** 2).sum(axis=1) <= stats.chi2.ppf(0.9, 2)).mean()
    assert 0.3 < exact < 0.99
    assert coverage == pytest.approx(exact, abs=0.03)
    assert 0.2 < ess < 1
    wrong, _ = reweighted_coverage(draws, -2 * beta * (counts - 1) @ losses.T, x.mean(axis=0), 0.9)
    assert abs(wrong - exact) > 0.03


class Squares(Loss):
    x: object

    def each(self, theta):
        return ((theta - self.x) ** 2).sum(axis=1)


PRIOR = unconstrained(nsm.GaussianPrior(np.zeros(2), 100 * np.eye(2)))


class Exact(SampledProblem):
    """A posterior N(mean(x), I / (2 beta n)) of a Gaussian location, sampled exactly, with its loss and prior."""

    def __init__(self, x):
        super().__init__(PRIOR, Squares(jnp.asarray(x)), len(x), AdaptiveSampler())
        self.x, self.calls = x, 0

    def draw(self, beta, seed):
        self.calls += 1
        rng = np.random.default_rng(seed)
        positions = self.x.mean(axis=0) + rng.standard_normal((4, 500, 2)) / np.sqrt(2 * beta * len(self.x))
        draws = Draws(positions, np.ones(4), np.zeros(4, int), np.ones(2), np.full(2, 2000.0), np.full(2, 2000.0))
        return Target(PRIOR, Squares(jnp.asarray(self.x)), jnp.asarray(beta)), draws


def test_finds_the_calibrated_rate_of_a_gaussian_location():
    """With unit variance the calibrated rate is 1/2, the likelihood's; started there it stays within a factor of 2."""
    problem = Exact(np.random.default_rng(1).standard_normal((60, 2)))
    found = nsm.calibration.ReweightingCalibration(initial_beta=0.5).calibrate(problem, seed=0)
    assert found.status == CalibrationStatus.STEPS
    assert 0.25 < found.beta < 1.0
    np.testing.assert_allclose(found.minimiser, problem.x.mean(axis=0), atol=1e-3)


def test_refreshes_draws_and_refuses_degenerate_weights():
    problem = Exact(np.random.default_rng(1).standard_normal((60, 2)))
    moved = nsm.calibration.ReweightingCalibration(initial_beta=4.0, steps=10).calibrate(problem, seed=0)
    assert moved.beta < 4.0
    assert problem.calls > 1
    refused = nsm.calibration.ReweightingCalibration(initial_beta=4.0, refuse=0.9).calibrate(problem, seed=0)
    assert refused.status == CalibrationStatus.DEGENERATE
    assert len(refused.betas) == 0
