"""The default calibration: the largest learning rate whose bootstrap coverage meets its target, by root search.

All learning rates are judged on the same resamples, so coverage is a deterministic step function of beta and the
result does not depend on a starting value.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes.calibration.base import Calibration, CalibrationResult, CalibrationStatus, check_options
from nsmbayes.calibration.closed_form import ClosedFormProblem, Ridge
from nsmbayes.errors import InputError
from nsmbayes.serialisation import registered

_BISECTIONS = 30


@registered
@dataclass(frozen=True, kw_only=True)
class RootCalibration(Calibration[ClosedFormProblem]):
    """A grid over log beta finds the last crossing of the target; bisection refines it.

    Args:
        bootstraps: number of resamples.
        target: the target coverage, and the probability of the regions.
        reference: the point that the regions of the resampled posteriors should contain. "posterior-mean": the mean of
            the full posterior at the same beta, with the same shrinkage towards the prior. "minimiser": the minimiser
            of the loss, as in the paper; if the data hardly identify a parameter, it can be so far away that no region
            contains it.
        smallest: the smallest learning rate tried.
        largest: the largest learning rate allowed. The bootstrap does not measure the error of the surrogate, and
            without a bound it would allow regions that are too small. The default is for the loss without noise: in
            whitened coordinates and without a weight, the loss of a Gaussian model has the curvature of its log
            likelihood at beta = 1/4 in the scale and at 1/2 in the location, so a generalised posterior at 1/4 is
            nowhere sharper than the likelihood would be. With noise levels, whose natural learning rate is 1,
            `NSMBayesConj` uses 3/4. Both values were chosen after looking at true coverage on g-and-k data.
        grid: number of learning rates on the grid.
        ridge: ridge that stabilises the minimiser, "trace" or "condition".
    """

    kind = "root"
    problem = ClosedFormProblem

    bootstraps: int = 400
    target: float = 0.95
    reference: Literal["posterior-mean", "minimiser"] = "posterior-mean"
    smallest: float = 1e-6
    largest: float = 0.25
    grid: int = 61
    ridge: Ridge = "trace"

    def __post_init__(self):
        check_options(bootstraps=self.bootstraps, target=self.target)
        checks.choice(self.ridge, "ridge", ("trace", "condition"))
        checks.choice(self.reference, "reference", ("posterior-mean", "minimiser"))
        if checks.positive(self.largest, "largest") <= checks.positive(self.smallest, "smallest"):
            raise InputError(f"`largest` ({self.largest}) must exceed `smallest` ({self.smallest}).")
        checks.integer(self.grid, "grid", at_least=2)

    def calibrate(self, problem: ClosedFormProblem, *, seed: int) -> CalibrationResult:
        """Choose the learning rate for the data of `problem`."""
        minimiser = problem.minimiser(self.ridge)
        drawn = problem.resample(self.bootstraps, seed)
        curve = problem.coverage(drawn, self.target)

        def coverage(beta: Float[np.ndarray, "*betas"]) -> Float[np.ndarray, "*betas"]:
            return curve(beta, minimiser if self.reference == "minimiser" else problem.mean(beta))

        betas = np.geomspace(self.smallest, self.largest, self.grid)
        coverages = coverage(betas)
        met = np.flatnonzero(coverages >= self.target)
        if not met.size:
            beta, status = float(betas[coverages.argmax()]), CalibrationStatus.UNREACHED
        elif met[-1] == self.grid - 1:
            beta, status = self.largest, CalibrationStatus.UNBOUNDED
        else:
            low, high = np.log(betas[met[-1]]), np.log(betas[met[-1] + 1])
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if coverage(np.exp(middle)) >= self.target else (low, middle)
            beta, status = float(np.exp(low)), CalibrationStatus.REACHED
        return CalibrationResult(
            beta=beta,
            betas=betas,
            coverages=coverages,
            target=self.target,
            minimiser=minimiser,
            status=status,
            method="root search on common bootstrap resamples",
            bootstraps=self.bootstraps,
            degenerate=drawn.degenerate,
        )
