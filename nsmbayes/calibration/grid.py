"""Algorithm 3 of the paper: from a short list, the learning rate with bootstrap coverage nearest to the target."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nsmbayes._internal import checks
from nsmbayes.calibration.base import (
    Calibration,
    CalibrationResult,
    CalibrationStatus,
    ResampledProblem,
    check_options,
    resample_counts,
)
from nsmbayes.calibration.regions import gaussian_region_contains
from nsmbayes.errors import InputError
from nsmbayes.serialisation import registered

_DIGITS = 9  # coverages are fractions of few resamples: smaller differences of distances are rounding errors


@registered
@dataclass(frozen=True, kw_only=True)
class GridCalibration(Calibration[ResampledProblem]):
    """Choose from a list of learning rates by coverage: how many regions of resampled posteriors contain the minimiser.

    The regions are those of Algorithm 1: ellipsoids of the mean and covariance of the draws, with a quantile of the
    chi-squared distribution as the radius. At small learning rates all regions contain the minimiser of the loss, so
    several rates are equally near to the target. The printed algorithm then takes the smallest, whose posterior is the
    prior. The default here is the largest, which agrees with the results in the paper.

    Args:
        betas: the learning rates to try, in any order.
        ties: which of several learning rates equally near to the target to choose, "largest" or "smallest".
        bootstraps: number of resamples, the same for all learning rates.
        target: the target coverage, and the probability of the regions.
    """

    kind = "grid"
    problem = ResampledProblem

    betas: tuple[float, ...] = (1.0, 10.0, 100.0)
    ties: Literal["largest", "smallest"] = "largest"
    bootstraps: int = 20
    target: float = 0.95

    def __post_init__(self):
        checks.instance(self.betas, "betas", tuple | list, "a tuple, e.g. (1.0, 10.0, 100.0)")
        if not self.betas:
            raise InputError("`betas` must hold at least one learning rate.")
        for beta in self.betas:
            checks.positive(beta, "betas")
        checks.choice(self.ties, "ties", ("largest", "smallest"))
        check_options(bootstraps=self.bootstraps, target=self.target)

    def calibrate(self, problem: ResampledProblem, *, seed: int) -> CalibrationResult:
        """Choose the learning rate for the data of `problem`."""
        minimiser = problem.minimiser()
        betas = np.sort(np.asarray(self.betas, float))
        counts = resample_counts(problem.n, self.bootstraps, np.random.default_rng(seed))
        coverages = np.array(
            [
                np.mean([gaussian_region_contains(each, minimiser, self.target) for each in some])
                for some in problem.draw_resampled(betas, counts)
            ]
        )
        distances = np.abs(coverages - self.target).round(_DIGITS)
        tied = np.flatnonzero(distances == distances.min())
        best = tied[-1] if self.ties == "largest" else tied[0]
        return CalibrationResult(
            beta=float(betas[best]),
            betas=betas,
            coverages=coverages,
            target=self.target,
            minimiser=minimiser,
            status=CalibrationStatus.NEAREST,
            method="grid of learning rates (Algorithm 3)",
            bootstraps=self.bootstraps,
        )
