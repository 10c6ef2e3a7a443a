"""The interface of calibrations: from a problem to a learning rate, with a trace of the search."""

import textwrap
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks


class CalibrationStatus(StrEnum):
    """Status of a calibration, as a message for the user."""

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
        "the reweighted draws degenerated, so that coverage could no longer be computed from them; the last reliable "
        "learning rate was kept"
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
    """The chosen learning rate, and the trace of tried values with their bootstrap coverage."""

    beta: float
    betas: Float[np.ndarray, " tried"]
    coverages: Float[np.ndarray, " tried"]
    target: float
    minimiser: Float[np.ndarray, " d"] | None  # minimiser of the loss; None if it was not needed
    status: CalibrationStatus
    method: str
    bootstraps: int
    degenerate: int = 0
    sequential: bool = False
    """Whether each tried value depends on the coverage of the previous one, rather than on a grid or a bracket."""

    def describe(self) -> str:
        """Describe the result in one sentence."""
        note = (
            f" {self.degenerate} of {self.bootstraps} resamples had too many ties for a scatter of their own and used "
            "that of the full data."
            if self.degenerate
            else ""
        )
        return f"{self.method}, target {self.target:.0%}: {self.status}.{note}"

    def wrapped(self) -> str:
        """Wrap the sentence of `describe` into lines of at most 100 characters, for the terminal."""
        return textwrap.fill(f"Calibration: {self.describe()}", 100)


class CalibrationProblem(ABC):
    """A generalised posterior exp(-beta loss) prior of n observations, as needed by a calibration.

    There are three kinds: posteriors in closed form (`ClosedFormProblem`), sampled posteriors whose draws can be
    reweighted to resampled data (`SampledProblem`), and posteriors that must be sampled for every resample
    (`ResampledProblem`).
    """

    n: int
    """Number of observations."""


class ResampledProblem(CalibrationProblem):
    """A posterior that must be sampled again for every resample of the data."""

    @abstractmethod
    def minimiser(self) -> Float[np.ndarray, " d"]:
        """The unconstrained parameter that minimises the loss of the full data."""

    @abstractmethod
    def draw_resampled(
        self, betas: Float[np.ndarray, " k"], counts: Int[np.ndarray, "resamples n"]
    ) -> Float[np.ndarray, "k resamples draws d"]:
        """Draw at each of k learning rates given each resample, a vector of counts of the observations."""


Problem = TypeVar("Problem", bound=CalibrationProblem)


class Calibration(ABC, Generic[Problem]):
    """Base class of methods to choose the learning rate. Calibrations are frozen dataclasses that store options."""

    kind: ClassVar[str]
    problem: ClassVar[type[CalibrationProblem]]
    """The kind of problem that the calibration solves."""

    @abstractmethod
    def calibrate(self, problem: Problem, *, seed: int) -> CalibrationResult:
        """Choose the learning rate for the data of `problem`."""


def check_options(*, bootstraps: Any, target: Any) -> None:
    """Check the options that all calibrations have."""
    checks.integer(bootstraps, "bootstraps", at_least=2)
    checks.positive(checks.fraction(target, "target"), "target")


def as_calibration(calibration: Any, problem: type[CalibrationProblem], example: str) -> Any:
    """Return `calibration` if it is for this kind of problem; otherwise raise `InputError` that suggests `example`."""
    fits = isinstance(calibration, Calibration) and calibration.problem is problem
    return checks.instance(calibration, "calibration", Calibration if fits else (), example)


def resample_counts(n: int, resamples: int, rng: np.random.Generator) -> Int[np.ndarray, "resamples n"]:
    """How often each observation occurs in each bootstrap resample."""
    return rng.multinomial(n, np.full(n, 1 / n), size=resamples)
