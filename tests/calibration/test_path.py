"""Coverage read off a tempered path, on a Gaussian location whose posteriors are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.calibration.path import choose, sweep
from nsmbayes.calibration.reweighting import resample_counts, reweighted_coverage, total_losses
from nsmbayes.posteriors import Verdict
from nsmbayes.posteriors.data_loss import DataLoss
from nsmbayes.posteriors.generalised import Target
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import Draws

N = 60
X = np.random.default_rng(1).standard_normal((N, 2))
PRIOR = unconstrained(nsm.GaussianPrior(np.zeros(2), 9 * np.eye(2)))


class Squares(DataLoss):
    """With unit variance the calibrated rate is 1/2, the likelihood's."""

    x: object

    def each(self, theta):
        return ((theta - self.x) ** 2).sum(axis=1)


def exact(beta, counts=None):
    """Mean and variance (a coordinate) of the posterior of the data, or of each resample."""
    total = X.sum(axis=0) if counts is None else counts @ X
    precision = 1 / 9 + 2 * beta * N
    return 2 * beta * total / precision, 1 / precision


def draw(beta, seed):
    mean, variance = exact(beta)
    positions = mean + np.sqrt(variance) * np.random.default_rng(seed).standard_normal((4, 500, 2))
    draws = Draws(positions, np.ones(4), np.zeros(4, int), np.ones(2), np.full(2, 2000.0))
    return Target(PRIOR, Squares(jnp.asarray(X)), jnp.asarray(beta)), draws


def exact_coverage(beta, counts, reference):
    means, variance = exact(beta, counts)
    return (((means - reference) ** 2).sum(axis=1) / variance <= stats.chi2.ppf(0.95, 2)).mean()


def test_one_sweep_gives_the_coverage_at_every_rate(x64):
    """200 resamples x 6 rates from 512 particles a stage, within 0.05 of the exact regions; a wrong rate is noticed."""
    target, _ = draw(1.0, 0)
    pool = sweep(target, 2.0, 512, seed=0)
    counts = resample_counts(N, 200, np.random.default_rng(0))
    losses = total_losses(target, pool.positions, counts)
    np.testing.assert_allclose(losses.full, pool.losses, rtol=1e-9)
    for beta in (0.05, 0.2, 0.5, 0.9, 1.3, 2.0):
        reference = exact(beta)[0]
        log_weights = -beta * losses.resampled - pool.log_density
        coverage, ess = reweighted_coverage(pool.positions, log_weights, reference, 0.95)
        assert coverage == pytest.approx(exact_coverage(beta, counts, reference), abs=0.05)
        assert ess * len(pool.positions) > 150
    wrong, _ = reweighted_coverage(pool.positions, 2 * log_weights, reference, 0.95)
    assert abs(wrong - coverage) > 0.05


def test_nothing_is_swept_where_the_largest_rate_meets_the_target(x64):
    calls = []

    def counted(beta, seed):
        calls.append(beta)
        return draw(beta, seed)

    found = nsm.PathCalibration(largest=0.2)(counted, N, seed=0)
    assert calls == [0.2]
    assert found.calibration.verdict == Verdict.UNBOUNDED
    assert found.calibration.beta == 0.2
    assert float(found.target.beta) == 0.2


@pytest.mark.parametrize("reference", ["posterior-mean", "minimiser"])
def test_trims_a_rate_that_is_too_large(reference):
    """From 8 down to within a factor of 2 of 1/2, with the same answer for another largest rate."""
    betas = [
        nsm.PathCalibration(largest=largest, reference=reference, grid=41, particles=400)(
            draw, N, seed=0
        ).calibration.beta
        for largest in (8.0, 3.0)
    ]
    assert all(0.25 < beta < 1 for beta in betas)
    assert betas[0] == pytest.approx(betas[1], rel=0.35)


def test_degenerate_weights_are_refused():
    found = nsm.PathCalibration(largest=8.0, least_ess=1e9, particles=128)(draw, N, seed=0)
    assert np.isnan(found.calibration.coverages).all()
    assert found.calibration.verdict == Verdict.DEGENERATE
    assert found.calibration.beta == nsm.PathCalibration().smallest


@pytest.mark.parametrize(
    ("coverages", "beta", "verdict"),
    [
        ([1.0, 0.97, 0.9], 2.0, Verdict.REACHED),
        ([1.0, 0.90, 0.96], 3.0, Verdict.UNBOUNDED),
        ([0.8, 0.9, 0.7], 2.0, Verdict.UNREACHED),
        ([1.0, 0.97, np.nan], 2.0, Verdict.PARTLY_JUDGED),
        ([np.nan, np.nan, np.nan], 1.0, Verdict.DEGENERATE),
    ],
)
def test_the_largest_rate_that_meets_the_target_is_chosen(coverages, beta, verdict):
    assert choose(np.array([1.0, 2.0, 3.0]), np.array(coverages), 0.95) == (beta, verdict)
