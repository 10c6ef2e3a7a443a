"""Algorithm 3 of the paper: the learning rate of a short list whose bootstrap coverage is nearest to its target."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.calibration.reweighting import resample_counts
from nsmbayes.posteriors.learning_rate import Calibration, Verdict

DrawMany = Callable[[Float[np.ndarray, " k"], Int[np.ndarray, "resamples n"]], Float[np.ndarray, "k resamples draws d"]]
"""Posterior draws at each of k learning rates given each of the resamples, which are counts of the observations."""


_DIGITS = 9  # coverages are fractions of few resamples: beyond this, distances to the target differ by rounding only


@dataclass(frozen=True, kw_only=True)
class GridCalibration:
    """For each learning rate, how many of the regions of resampled posteriors contain the minimiser of the loss.

    The regions are those of Algorithm 1: ellipsoids of the mean and covariance of the draws, cut at a quantile of the
    chi-squared distribution. At small learning rates all of them contain it, so that several rates are equally near to
    the target. The algorithm as printed then takes the smallest, whose posterior is the prior. The default here is the
    largest, which is what the results in the paper agree with.

    Args:
        betas: the learning rates to try, in any order.
        ties: which of several learning rates equally near to the target is taken, "largest" or "smallest".
        bootstraps: number of resamples, the same for all of them.
        target: the wished coverage, and the probability of the regions.
    """

    betas: tuple[float, ...] = (1.0, 10.0, 100.0)
    ties: Literal["largest", "smallest"] = "largest"
    bootstraps: int = 20
    target: float = 0.95

    def __post_init__(self):
        _checks.instance(self.betas, "betas", tuple | list, "(1.0, 10.0, 100.0)")
        if not self.betas:
            raise InputError("`betas` must hold at least one learning rate.")
        for beta in self.betas:
            _checks.positive(beta, "betas")
        _checks.choice(self.ties, "ties", ("largest", "smallest"))
        _checks.integer(self.bootstraps, "bootstraps", at_least=2)
        _checks.positive(_checks.fraction(self.target, "target"), "target")

    def __call__(self, draw_many: DrawMany, minimiser: Float[np.ndarray, " d"], n: int, *, seed: int) -> Calibration:
        """The calibrated learning rate for n observations whose loss is smallest at `minimiser`."""
        betas = np.sort(np.asarray(self.betas, float))
        draws = draw_many(betas, resample_counts(n, self.bootstraps, np.random.default_rng(seed)))
        coverages = np.array([np.mean([covers(each, minimiser, self.target) for each in some]) for some in draws])
        distances = np.abs(coverages - self.target).round(_DIGITS)
        tied = np.flatnonzero(distances == distances.min())
        best = tied[-1] if self.ties == "largest" else tied[0]
        return Calibration(
            beta=float(betas[best]),
            betas=betas,
            coverages=coverages,
            target=self.target,
            minimiser=minimiser,
            verdict=Verdict.NEAREST,
            method="grid of learning rates (Algorithm 3)",
            bootstraps=self.bootstraps,
            degenerate=0,
        )


def covers(draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"], level: float) -> bool:
    """Whether the ellipsoid of the draws' mean and covariance, cut at a quantile of chi-squared, contains the point.

    Draws that do not vary, or that ran away, contain nothing.
    """
    if not np.isfinite(draws).all():
        return False
    offset = point - draws.mean(axis=0)
    covariance = np.atleast_2d(np.cov(draws.T))
    try:
        distance = offset @ np.linalg.solve(covariance, offset)
    except np.linalg.LinAlgError:
        return False
    return bool(distance <= stats.chi2.ppf(level, len(point)))
