"""What a posterior knows of how its learning rate was chosen."""

import textwrap
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float


class Verdict(StrEnum):
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
    UNBOUNDED = "bootstrap coverage meets its target up to the largest learning rate allowed, which was taken"


@dataclass(frozen=True)
class Calibration:
    """The learning rate chosen, and the trace of values tried with the bootstrap coverage of each."""

    beta: float
    betas: Float[np.ndarray, " tried"]
    coverages: Float[np.ndarray, " tried"]
    target: float
    minimiser: Float[np.ndarray, " d"] | None  # of the loss; None if it was not needed
    verdict: Verdict
    method: str
    bootstraps: int
    degenerate: int

    def describe(self) -> str:
        """One sentence."""
        note = (
            f" {self.degenerate} of {self.bootstraps} resamples were too tied for a scatter of their own and used that "
            "of the full data."
            if self.degenerate
            else ""
        )
        return f"{self.method}, target {self.target:.0%}: {self.verdict}.{note}"

    def wrapped(self) -> str:
        """The same in lines of at most 100 characters, for the terminal."""
        return textwrap.fill(f"Calibration: {self.describe()}", 100)
