"""Algorithm 3 of the paper: the learning rate of a short list whose bootstrap coverage is nearest to its target."""

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

_DIGITS = 9  # coverages are fractions of few resamples: beyond this, distances to the target differ by rounding only


@registered
@dataclass(frozen=True, kw_only=True)
class GridCalibration(Calibration[ResampledProblem]):
    """For each learning rate, how many of the regions of resampled posteriors contain the minimiser of the loss.

    The regions are those of Algorithm 1: ellipsoids of the mean and covariance of the draws, cut at a quantile of the
    chi-squared distribution. At small learning rates all of them contain it, so that several rates are equally near to
    the target. The algorithm as printed then takes the smallest, whose posterior is the prior. The default here is the
    largest, which is what the results in the paper agree with.

    Args:
        betas: the learning rates to try, in any order.
        ties: which of several learning rates equally near to the target is taken, "largest" or "smallest".
        bootstraps: number of resamples, the same for all of them.
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
        """The learning rate for the data behind `problem`."""
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
