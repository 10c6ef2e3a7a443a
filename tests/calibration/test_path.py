"""Coverage read off a tempered path, on a Gaussian location whose posteriors are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.calibration import CalibrationStatus, SampledProblem
from nsmbayes.calibration.base import resample_counts
from nsmbayes.calibration.importance import reweighted_coverage
from nsmbayes.calibration.path import choose, pooled, sweep
from nsmbayes.losses import Loss
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import AdaptiveSampler, Draws, Target

N = 60
X = np.random.default_rng(1).standard_normal((N, 2))
PRIOR = unconstrained(nsm.GaussianPrior(np.zeros(2), 9 * np.eye(2)))


class Squares(Loss):
    """With unit variance the calibrated rate is 1/2, the likelihood's."""

    x: object

    def each(self, theta):
        return ((theta - self.x) ** 2).sum(axis=1)


def exact(beta, counts=None):
    """Mean and variance (a coordinate) of the posterior of the data, or of each resample."""
    total = X.sum(axis=0) if counts is None else counts @ X
    precision = 1 / 9 + 2 * beta * N
    return 2 * beta * total / precision, 1 / precision


class Exact(SampledProblem):
    """The same problem with exact draws, and the rates at which they were asked for."""

    def __init__(self):
        super().__init__(PRIOR, Squares(jnp.asarray(X)), N, AdaptiveSampler())
        self.asked = []

    def draw(self, beta, seed):
        self.asked.append(beta)
        mean, variance = exact(beta)
        positions = mean + np.sqrt(variance) * np.random.default_rng(seed).standard_normal((4, 500, 2))
        draws = Draws(positions, np.ones(4), np.zeros(4, int), np.ones(2), np.full(2, 2000.0), np.full(2, 2000.0))
        return Target(PRIOR, Squares(jnp.asarray(X)), jnp.asarray(beta)), draws


def exact_coverage(beta, counts, reference):
    means, variance = exact(beta, counts)
    return (((means - reference) ** 2).sum(axis=1) / variance <= stats.chi2.ppf(0.95, 2)).mean()


def test_one_sweep_gives_the_coverage_at_every_rate(x64):
    """200 resamples x 6 rates from 512 particles per stage, within 0.05 of the exact ones; a wrong rate is noticed."""
    problem = Exact()
    target, _ = problem.draw(1.0, 0)
    pool = pooled(sweep(target, 2.0, 512, seed=0), np.random.default_rng(0))
    counts = resample_counts(N, 200, np.random.default_rng(0))
    losses = problem.total_losses(target, pool.positions, counts)
    np.testing.assert_allclose(losses.full, pool.losses, rtol=1e-9)
    for beta in (0.05, 0.2, 0.5, 0.9, 1.3, 2.0):
        reference = exact(beta)[0]
        log_weights = -beta * losses.resampled - pool.log_mixture
        coverage, ess = reweighted_coverage(pool.positions, log_weights, reference, 0.95)
        assert coverage == pytest.approx(exact_coverage(beta, counts, reference), abs=0.05)
        assert ess * len(pool.positions) > 150
    wrong, _ = reweighted_coverage(pool.positions, 2 * log_weights, reference, 0.95)
    assert abs(wrong - coverage) > 0.05


def test_nothing_is_swept_where_the_largest_rate_meets_the_target(x64):
    problem = Exact()
    found = nsm.calibration.PathCalibration(largest=0.2).calibrate(problem, seed=0)
    assert problem.asked == [0.2]
    assert found.status == CalibrationStatus.UNBOUNDED
    assert found.beta == 0.2


@pytest.mark.parametrize("reference", ["posterior-mean", "minimiser"])
def test_trims_a_rate_that_is_too_large(reference):
    """From 8 down to within a factor of 2 of 1/2, with the same answer for another largest rate."""
    betas = [
        nsm.calibration.PathCalibration(largest=largest, reference=reference, grid=41, particles=400)
        .calibrate(Exact(), seed=0)
        .beta
        for largest in (8.0, 3.0)
    ]
    assert all(0.25 < beta < 1 for beta in betas)
    assert betas[0] == pytest.approx(betas[1], rel=0.35)


def test_degenerate_weights_are_refused():
    found = nsm.calibration.PathCalibration(largest=8.0, least_ess=1e9, particles=128).calibrate(Exact(), seed=0)
    assert np.isnan(found.coverages).all()
    assert found.status == CalibrationStatus.DEGENERATE
    assert found.beta == nsm.calibration.PathCalibration().smallest


@pytest.mark.parametrize(
    ("coverages", "beta", "status"),
    [
        ([1.0, 0.97, 0.9], 2.0, CalibrationStatus.REACHED),
        ([1.0, 0.90, 0.96], 3.0, CalibrationStatus.UNBOUNDED),
        ([0.8, 0.9, 0.7], 2.0, CalibrationStatus.UNREACHED),
        ([1.0, 0.97, np.nan], 2.0, CalibrationStatus.PARTLY_JUDGED),
        ([np.nan, np.nan, np.nan], 1.0, CalibrationStatus.DEGENERATE),
    ],
)
def test_the_largest_rate_that_meets_the_target_is_chosen(coverages, beta, status):
    assert choose(np.array([1.0, 2.0, 3.0]), np.array(coverages), 0.95) == (beta, status)
