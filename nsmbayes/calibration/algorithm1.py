"""Algorithm 1 of the paper: stochastic approximation of the learning rate whose regions have the wished coverage."""

from dataclasses import dataclass

import numpy as np

from nsmbayes import _checks
from nsmbayes.calibration.bootstrap import bootstrap_losses
from nsmbayes.calibration.coverage import coverage_curve
from nsmbayes.calibration.minimiser import Ridge, loss_minimiser
from nsmbayes.losses import Quadratic
from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.learning_rate import Calibration, Verdict

_LARGEST_STEP = 0.25


def next_beta(beta: float, t: int, excess: float, *, floor: float) -> float:
    """One step of the stochastic approximation, t = 0, 1, ...: log beta moves by 10 / (t + 11) times the excess."""
    step = np.clip(10 / (t + 1 + 10) * excess, -_LARGEST_STEP, _LARGEST_STEP)
    return max(float(beta * np.exp(step)), floor)


@dataclass(frozen=True, kw_only=True)
class StochasticCalibration:
    """log beta moves by kappa_t (coverage - target), kappa_t = 10 / (t + 10), on fresh resamples at every step.

    Steps are capped at 0.25 and beta is kept above beta_0 / 100, as in the paper's experiments. The result depends on
    `initial_beta`: in 20 steps beta can grow by less than a factor of two. `RootCalibration` has no such dependence.
    """

    initial_beta: float = 0.1
    steps: int = 20
    bootstraps: int = 100
    target: float = 0.95
    ridge: Ridge = "trace"

    def __post_init__(self):
        _checks.positive(self.initial_beta, "initial_beta")
        _checks.integer(self.steps, "steps", at_least=1)
        _checks.integer(self.bootstraps, "bootstraps", at_least=2)
        _checks.positive(_checks.fraction(self.target, "target"), "target")
        _checks.choice(self.ridge, "ridge", ("trace", "condition"))

    def __call__(self, posterior: ConjugatePosterior, *, seed: int) -> Calibration:
        """The calibrated learning rate for the data behind `posterior`."""
        minimiser = loss_minimiser(posterior.average_loss, ridge=self.ridge)
        drawn = bootstrap_losses(posterior, self.steps * self.bootstraps, seed)
        floor = self.initial_beta / 100
        betas, coverages = [self.initial_beta], []
        for t in range(self.steps):
            batch = slice(t * self.bootstraps, (t + 1) * self.bootstraps)
            losses = Quadratic(*(a[batch] for a in drawn.losses))
            curve = coverage_curve(posterior.prior, losses, self.target, posterior.resolution)
            coverages.append(float(curve(betas[t], minimiser)))
            betas.append(next_beta(betas[t], t, coverages[t] - self.target, floor=floor))
        return Calibration(
            beta=betas[-1],
            betas=np.asarray(betas[:-1]),
            coverages=np.asarray(coverages),
            target=self.target,
            minimiser=minimiser,
            verdict=Verdict.FLOOR if betas[-1] <= floor else Verdict.STEPS,
            method="stochastic approximation (Algorithm 1)",
            bootstraps=self.steps * self.bootstraps,
            degenerate=drawn.degenerate,
        )
