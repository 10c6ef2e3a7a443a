import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.calibration import CalibrationStatus, ResampledProblem
from nsmbayes.calibration.regions import gaussian_region_contains

N = 50
X = np.random.default_rng(0).standard_normal(N)


class GaussianLocation(ResampledProblem):
    """exp(-beta sum_i (x_i - theta)^2 / 2), whose minimiser may be said to be elsewhere."""

    n = N

    def __init__(self, off=0.0):
        self.off = off

    def minimiser(self):
        return np.array([X.mean() + self.off])

    def draw_resampled(self, betas, counts):
        """Given each resample: N(mean, 1 / (beta n))."""
        rng = np.random.default_rng(1)
        means = counts @ X / N
        noise = rng.standard_normal((len(betas), len(counts), 2000, 1))
        return means[None, :, None, None] + noise / np.sqrt(betas * N)[:, None, None, None]


def test_the_learning_rate_of_the_likelihood_is_found():
    """At beta = 1 the regions of a well specified model have the coverage they claim."""
    calibration = nsm.calibration.GridCalibration(betas=(1.0, 10.0, 0.01, 100.0), bootstraps=400)
    result = calibration.calibrate(GaussianLocation(), seed=0)
    assert result.beta == 1.0
    assert result.status is CalibrationStatus.NEAREST
    assert np.array_equal(result.betas, [0.01, 1.0, 10.0, 100.0])
    # P(|N(0, 1)| < 1.96 / sqrt(beta) / sd(x)); 4 standard errors of 400 resamples
    expected = [1.0, 0.95, 0.46, 0.16]
    assert np.abs(result.coverages - expected).max() < 4 * np.sqrt(0.25 / 400)


@pytest.mark.parametrize(("ties", "beta"), [("largest", 0.02), ("smallest", 0.01)])
def test_ties(ties, beta):
    calibration = nsm.calibration.GridCalibration(betas=(0.01, 0.02, 1000.0), ties=ties)
    result = calibration.calibrate(GaussianLocation(), seed=0)
    assert np.array_equal(result.coverages[:2], [1.0, 1.0])
    assert result.beta == beta


def test_the_minimiser_decides():
    """A minimiser far away is in no region, whatever the learning rate: the planted bug of a wrong minimiser."""
    result = nsm.calibration.GridCalibration().calibrate(GaussianLocation(off=3.0), seed=0)
    assert not result.coverages.any()


def test_regions():
    draws = np.random.default_rng(0).standard_normal((4000, 2)) @ np.array([[2.0, 0.0], [1.0, 0.5]])
    inside = [gaussian_region_contains(draws, point, 0.9) for point in draws]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)
    assert not gaussian_region_contains(np.zeros((10, 2)), np.zeros(2), 0.95)
    assert not gaussian_region_contains(np.full((10, 2), np.nan), np.zeros(2), 0.95)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": ()}, "at least one learning rate"),
        ({"betas": (1.0, -1.0)}, "`betas` must be positive"),
        ({"betas": 1.0}, "`betas` must be a tuple"),
        ({"ties": "first"}, "`ties` must be one of"),
        ({"bootstraps": 1}, "`bootstraps` must be at least 2"),
        ({"target": 1.0}, "`target` must lie in"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(nsm.InputError, match=message):
        nsm.calibration.GridCalibration(**options)
