"""The default calibration: the largest learning rate whose bootstrap coverage meets its target, by root search.

All learning rates are judged on the same resamples, so coverage is a deterministic step function of beta and the
result does not depend on a starting value.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes.calibration.bootstrap import bootstrap_losses
from nsmbayes.calibration.coverage import coverage_curve
from nsmbayes.calibration.minimiser import Ridge, loss_minimiser
from nsmbayes.posteriors.conjugate import ConjugatePosterior, gaussian_posterior
from nsmbayes.posteriors.learning_rate import Calibration, Verdict

_BISECTIONS = 30


@dataclass(frozen=True, kw_only=True)
class RootCalibration:
    """A grid over log beta finds the last crossing of the target; bisection refines it.

    Args:
        bootstraps: number of resamples.
        target: the wished coverage, and the probability of the regions.
        reference: what the regions of the resampled posteriors should contain. "posterior-mean": the mean of the full
            posterior at the same beta, which the prior has drawn in just as far. "minimiser": the minimiser of the
            loss, as in the paper; where the data hardly identify a parameter it can lie so far out that no region
            contains it.
        smallest: the smallest learning rate tried.
        largest: the largest learning rate allowed. The bootstrap alone does not see the error of the surrogate, and
            without a bound it would allow regions that are too small. The default is for the loss without noise: in
            whitened coordinates and without a weight, the loss of a Gaussian model has the curvature of its log
            likelihood at beta = 1/4 in the scale and at 1/2 in the location, so that a generalised posterior at 1/4 is
            nowhere sharper than the likelihood would be. For noise levels, whose natural learning rate is 1,
            `NSMBayesConj` takes 3/4. Both values were settled on after looking at true coverage on g-and-k data.
        grid: number of learning rates on the grid.
        ridge: how the minimiser is stabilised.
    """

    bootstraps: int = 400
    target: float = 0.95
    reference: Literal["posterior-mean", "minimiser"] = "posterior-mean"
    smallest: float = 1e-6
    largest: float = 0.25
    grid: int = 61
    ridge: Ridge = "trace"

    def __post_init__(self):
        _checks.integer(self.bootstraps, "bootstraps", at_least=2)
        _checks.positive(_checks.fraction(self.target, "target"), "target")
        _checks.choice(self.ridge, "ridge", ("trace", "condition"))
        _checks.choice(self.reference, "reference", ("posterior-mean", "minimiser"))
        if _checks.positive(self.largest, "largest") <= _checks.positive(self.smallest, "smallest"):
            raise _checks.InputError(f"`largest` ({self.largest}) must exceed `smallest` ({self.smallest}).")
        _checks.integer(self.grid, "grid", at_least=2)

    def __call__(self, posterior: ConjugatePosterior, *, seed: int) -> Calibration:
        """The calibrated learning rate for the data behind `posterior`."""
        minimiser = loss_minimiser(posterior.average_loss, ridge=self.ridge)
        drawn = bootstrap_losses(posterior, self.bootstraps, seed)
        curve = coverage_curve(posterior.prior, drawn.losses, self.target, posterior.resolution)

        def coverage(beta: Float[np.ndarray, "*betas"]) -> Float[np.ndarray, "*betas"]:
            if self.reference == "minimiser":
                return curve(beta, minimiser)
            mean, _ = gaussian_posterior(posterior.prior, posterior.total, beta, posterior.resolution)
            return curve(beta, mean)

        betas = np.geomspace(self.smallest, self.largest, self.grid)
        coverages = coverage(betas)
        met = np.flatnonzero(coverages >= self.target)
        if not met.size:
            beta, verdict = float(betas[coverages.argmax()]), Verdict.UNREACHED
        elif met[-1] == self.grid - 1:
            beta, verdict = self.largest, Verdict.UNBOUNDED
        else:
            low, high = np.log(betas[met[-1]]), np.log(betas[met[-1] + 1])
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if coverage(np.exp(middle)) >= self.target else (low, middle)
            beta, verdict = float(np.exp(low)), Verdict.REACHED
        return Calibration(
            beta=beta,
            betas=betas,
            coverages=coverages,
            target=self.target,
            minimiser=minimiser,
            verdict=verdict,
            method="root search on common bootstrap resamples",
            bootstraps=self.bootstraps,
            degenerate=drawn.degenerate,
        )
