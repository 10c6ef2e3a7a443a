"""Algorithm 1 of the paper: stochastic approximation of the learning rate with the target coverage."""

from dataclasses import dataclass

import numpy as np

from nsmbayes._internal import checks
from nsmbayes.calibration.base import Calibration, CalibrationResult, CalibrationStatus, check_options
from nsmbayes.calibration.closed_form import ClosedFormProblem, Ridge
from nsmbayes.serialisation import registered

_LARGEST_STEP = 0.25


def next_beta(beta: float, t: int, excess: float, *, floor: float) -> float:
    """Step t = 0, 1, ... of the stochastic approximation: log beta moves by 10 / (t + 11) times the excess coverage."""
    step = np.clip(10 / (t + 1 + 10) * excess, -_LARGEST_STEP, _LARGEST_STEP)
    return max(float(beta * np.exp(step)), floor)


@registered
@dataclass(frozen=True, kw_only=True)
class StochasticCalibration(Calibration[ClosedFormProblem]):
    """Move log beta by kappa_t (coverage - target), kappa_t = 10 / (t + 10), with new resamples at every step.

    Steps are capped at 0.25 and beta is kept above beta_0 / 100, as in the paper's experiments. The result depends on
    `initial_beta`: in 20 steps beta can grow by less than a factor of two. `RootCalibration` has no such dependence.
    """

    kind = "stochastic"
    problem = ClosedFormProblem

    initial_beta: float = 0.1
    steps: int = 20
    bootstraps: int = 100
    target: float = 0.95
    ridge: Ridge = "trace"

    def __post_init__(self):
        checks.positive(self.initial_beta, "initial_beta")
        checks.integer(self.steps, "steps", at_least=1)
        check_options(bootstraps=self.bootstraps, target=self.target)
        checks.choice(self.ridge, "ridge", ("trace", "condition"))

    def calibrate(self, problem: ClosedFormProblem, *, seed: int) -> CalibrationResult:
        """Choose the learning rate for the data of `problem`."""
        minimiser = problem.minimiser(self.ridge)
        drawn = problem.resample(self.steps * self.bootstraps, seed)
        floor = self.initial_beta / 100
        betas, coverages = [self.initial_beta], []
        for t in range(self.steps):
            batch = drawn.between(t * self.bootstraps, (t + 1) * self.bootstraps)
            coverages.append(float(problem.coverage(batch, self.target)(betas[t], minimiser)))
            betas.append(next_beta(betas[t], t, coverages[t] - self.target, floor=floor))
        return CalibrationResult(
            beta=betas[-1],
            betas=np.asarray(betas[:-1]),
            coverages=np.asarray(coverages),
            target=self.target,
            minimiser=minimiser,
            status=CalibrationStatus.FLOOR if betas[-1] <= floor else CalibrationStatus.STEPS,
            method="stochastic approximation (Algorithm 1)",
            bootstraps=self.steps * self.bootstraps,
            sequential=True,
            degenerate=drawn.degenerate,
        )
