"""The contract of calibration: a problem in, a learning rate and the trace of how it was found out."""

import textwrap
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks


class CalibrationStatus(StrEnum):
    """How a calibration ended, as shown to the user."""

    REACHED = "bootstrap coverage meets its target"
    STEPS = "all stochastic steps were taken"
    FLOOR = (
        "all stochastic steps were taken and ended at the smallest learning rate allowed: coverage never came near its "
        "target. Raise the initial learning rate, or use the root search"
    )
    UNREACHED = (
        "no learning rate gives the target coverage, so the one with the best coverage was taken. Where the reference "
        "is the minimiser of the loss, it lies outside the prior's own region; check the prior and the surrogate"
    )
    DEGENERATE = (
        "the reweighted draws degenerated, so that coverage could no longer be read off them; what was last trusted "
        "was kept"
    )
    PARTLY_JUDGED = (
        "bootstrap coverage meets its target; larger learning rates could not be judged, because the reweighted draws "
        "degenerated there"
    )
    NEAREST = "of the learning rates tried, the one whose bootstrap coverage comes nearest to its target was taken"
    SIMULATED = "regions hold the truth of data sets simulated around the posterior as often as they say, or more often"
    UNBOUNDED = "bootstrap coverage meets its target up to the largest learning rate allowed, which was taken"


@dataclass(frozen=True)
class CalibrationResult:
    """The learning rate chosen, and the trace of values tried with the bootstrap coverage of each."""

    beta: float
    betas: Float[np.ndarray, " tried"]
    coverages: Float[np.ndarray, " tried"]
    target: float
    minimiser: Float[np.ndarray, " d"] | None  # of the loss; None if it was not needed
    status: CalibrationStatus
    method: str
    bootstraps: int
    degenerate: int = 0
    sequential: bool = False
    """Whether each value tried followed from the coverage of the one before, rather than from a grid or a bracket."""

    def describe(self) -> str:
        """One sentence."""
        note = (
            f" {self.degenerate} of {self.bootstraps} resamples were too tied for a scatter of their own and used that "
            "of the full data."
            if self.degenerate
            else ""
        )
        return f"{self.method}, target {self.target:.0%}: {self.status}.{note}"

    def wrapped(self) -> str:
        """The sentence in lines of at most 100 characters, for the terminal."""
        return textwrap.fill(f"Calibration: {self.describe()}", 100)


class CalibrationProblem(ABC):
    """A generalised posterior exp(-beta loss) prior of n observations, as far as a calibration has to know it.

    There are three kinds: posteriors in closed form (`ClosedFormProblem`), posteriors that are sampled and whose draws
    can be reweighted to resampled data (`SampledProblem`), and posteriors that are sampled anew for every resample
    (`ResampledProblem`).
    """

    n: int
    """Number of observations."""


class ResampledProblem(CalibrationProblem):
    """A posterior that has to be sampled anew for every resample of the data."""

    @abstractmethod
    def minimiser(self) -> Float[np.ndarray, " d"]:
        """The unconstrained parameter that minimises the loss of the full data."""

    @abstractmethod
    def draw_resampled(
        self, betas: Float[np.ndarray, " k"], counts: Int[np.ndarray, "resamples n"]
    ) -> Float[np.ndarray, "k resamples draws d"]:
        """Draws at each of k learning rates given each of the resamples, which are counts of the observations."""


Problem = TypeVar("Problem", bound=CalibrationProblem)


class Calibration(ABC, Generic[Problem]):
    """A way to choose the learning rate. Calibrations are frozen dataclasses: options only."""

    kind: ClassVar[str]
    problem: ClassVar[type[CalibrationProblem]]
    """The kind of problem that it solves."""

    @abstractmethod
    def calibrate(self, problem: Problem, *, seed: int) -> CalibrationResult:
        """The learning rate for the data behind `problem`."""


def check_options(*, bootstraps: Any, target: Any) -> None:
    """What every calibration is given."""
    checks.integer(bootstraps, "bootstraps", at_least=2)
    checks.positive(checks.fraction(target, "target"), "target")


def as_calibration(calibration: Any, problem: type[CalibrationProblem], example: str) -> Any:
    """`calibration`, if it is one for this kind of problem; `example` shows what to write."""
    fits = isinstance(calibration, Calibration) and calibration.problem is problem
    return checks.instance(calibration, "calibration", Calibration if fits else (), example)


def resample_counts(n: int, resamples: int, rng: np.random.Generator) -> Int[np.ndarray, "resamples n"]:
    """How often each observation occurs in each bootstrap resample."""
    return rng.multinomial(n, np.full(n, 1 / n), size=resamples)
