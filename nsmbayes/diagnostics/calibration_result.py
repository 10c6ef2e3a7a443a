"""The calibration map: coverage, ranks and TARP of a method's posteriors on data sets with known parameters."""

import functools
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from nsmbayes._internal.frames import data_frame
from nsmbayes._internal.text import shorten
from nsmbayes.diagnostics.answers import Answers
from nsmbayes.diagnostics.uniformity import p_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FALSE_ALARMS = 0.05
"""Upper bound of the probability that exact posteriors leave any band of a map."""
_BAND = 0.95  # probability of the intervals for coverages
_NOTICED = 2.0  # deviations of mean or spread above this number of standard errors are described in words


class Coverage(NamedTuple):
    """The fraction of central regions of a level that contain the true parameters."""

    data: str
    """The kind of data sets: "clean", or the name of the contamination."""
    level: float
    rate: float
    low: float
    """Ends `low` and `high` of the exact binomial interval (Clopper and Pearson) of probability 95 %."""
    high: float

    @property
    def verdict(self) -> str:
        """Whether the level lies in the interval, below or above it, in words."""
        if self.low <= self.level <= self.high:
            return "as stated"
        return "too rarely" if self.high < self.level else "more often than stated"


class Curve(NamedTuple):
    """Statistics that are uniform for exact posteriors, with a test of uniformity."""

    data: str
    name: str
    """The name of a parameter (its ranks), or "coverage" (levels of regions), or "TARP"."""
    values: Float[np.ndarray, " k"]
    p_value: float
    """The probability that exact posteriors look less uniform."""
    alarm: bool
    """Whether the curve leaves its band; for exact posteriors, any curve of a map does with a probability <= 5 %."""

    @property
    def is_rank(self) -> bool:
        """Whether the curve shows the ranks of one parameter."""
        return self.name not in ("coverage", "TARP")

    @property
    def meaning(self) -> str:
        """Interpretation of the shape of the curve, in words; empty if there is no clear deviation."""
        k, said = len(self.values), []
        shift = (self.values.mean() - 0.5) * np.sqrt(12 * k)
        spread = (self.values.var() - 1 / 12) * np.sqrt(180 * k)
        if not self.is_rank:
            if abs(shift) <= _NOTICED:
                return ""
            if self.name == "TARP" and shift < 0:
                return "the truth is nearer to a rough guess from the data than the posterior is"
            return "posteriors are too narrow or off" if shift > 0 else "posteriors are too wide"
        if abs(shift) > _NOTICED:
            said.append(f"posteriors lie too {'low' if shift > 0 else 'high'}")
        if abs(spread) > _NOTICED:
            said.append(f"they are too {'narrow, or off' if spread > 0 else 'wide'}")
        return ", ".join(said)


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """Coverage, ranks and TARP of a method; built by `nsmbayes.diagnostics.calibration`."""

    label: str
    """Name of the method in text for readers."""
    parameter_names: tuple[str, ...]
    n: int
    """Number of observations in a data set."""
    levels: tuple[float, ...]
    source: str
    """Source of the data sets: simulator, task or surrogate."""
    how: str
    """Sentences about how the posteriors were built."""
    generalised: bool
    """Whether the posteriors are those of a loss that is not a log likelihood, and need not be exact."""
    theta: Float[np.ndarray, "k d"]
    """The true parameters."""
    answers: dict[str, Answers]
    """Positions of the true parameters in the posteriors, by the kind of data sets."""

    @property
    def datasets(self) -> int:
        """Number of data sets of each kind."""
        return len(self.theta)

    @functools.cached_property
    def coverage(self) -> tuple[Coverage, ...]:
        """The rate at which central regions contain the true parameters, with intervals, by kind of data and level."""
        found = []
        for data, answers in self.answers.items():
            known = _known(answers.levels)
            for level in self.levels:
                hits, k = int((known <= level).sum()), len(known)
                low = stats.beta.ppf((1 - _BAND) / 2, hits, k - hits + 1) if hits else 0.0
                high = stats.beta.ppf((1 + _BAND) / 2, hits + 1, k - hits) if hits < k else 1.0
                found.append(Coverage(data, level, hits / k, float(low), float(high)))
        return tuple(found)

    @functools.cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Ranks of every parameter, levels of regions and TARP, by kind of data, each with a test of uniformity."""
        found = []
        for data, answers in self.answers.items():
            ranks = zip(self.parameter_names, answers.ranks.T, strict=True)
            for name, values in (*ranks, ("coverage", answers.levels), ("TARP", answers.tarp)):
                p = p_value(known := _known(values))
                found.append(Curve(data, name, known, p, p < self.alarm_level))
        return tuple(found)

    @property
    def alarm_level(self) -> float:
        """The p-value below which a curve is an alarm: 5 % divided among all curves of one kind of data."""
        return FALSE_ALARMS / (len(self.parameter_names) + 2)

    @property
    def alarms(self) -> tuple[Curve, ...]:
        """The curves that leave their bands."""
        return tuple(curve for curve in self.curves if curve.alarm)

    def table(self) -> str:
        """Table of coverages with their intervals, and of the curves, as text."""
        width = max(12, *(len(data) + 2 for data in self.answers))
        lines = [f"{'data':<{width}}{'region':>8}{'covers':>9}{'95 % interval':>18}"]
        for each in self.coverage:
            interval = f"{each.low:.1%} to {each.high:.1%}"
            lines.append(f"{each.data:<{width}}{each.level:>8.0%}{each.rate:>9.1%}{interval:>18}  {each.verdict}")
        lines.append(f"{'data':<{width}}{'curve':<14}{'p-value':>9}{'mean':>8}{'sd':>8}")
        for each in self.curves:
            p = "<0.001" if each.p_value < 0.001 else f"{each.p_value:.3f}"
            numbers = f"{p:>9}{each.values.mean():>8.3f}{each.values.std():>8.3f}"
            outside = "  outside its band" if each.alarm else ""
            lines.append(f"{each.data:<{width}}{shorten(each.name, 13):<14}{numbers}{outside}")
        return "\n".join(lines)

    def to_pandas(self) -> Any:
        """DataFrame of coverages and curves with one row each; needs pandas."""
        rows: list[dict[str, Any]] = [
            {"kind": "coverage", "value": each.rate, **each._asdict(), "verdict": each.verdict}
            for each in self.coverage
        ]
        for each in self.curves:
            about = {"data": each.data, "name": each.name, "p_value": each.p_value, "alarm": each.alarm}
            rows.append({"kind": "uniformity", "value": float(each.values.mean()), **about, "verdict": each.meaning})
        return data_frame(rows)

    def plot(self) -> "Figure":
        """Figure of coverage against level, and of the difference of every curve from the uniform one, with bands."""
        from nsmbayes.diagnostics.figures import plot_calibration_map  # matplotlib is slow to import

        return plot_calibration_map(self)

    def explain(self) -> str:
        """Describe the map in plain sentences."""
        return "\n".join(textwrap.fill(part, 110) for part in self.paragraphs())

    def paragraphs(self) -> list[str]:
        """The sentences of `explain`, one string per paragraph."""
        parts = [
            f"{self.label}: {self.datasets:,} data sets of {self.n:,} observations, simulated with {self.source}. "
            f"{self.how}"
        ]
        for data, answers in self.answers.items():
            parts += [self._about_coverage(data), self._about_curves(data)]
            if missing := int(np.isnan(answers.levels).sum()):
                parts.append(f"{missing} data sets have no posterior and are left out: {answers.problems[0]}")
            elif answers.problems:
                parts.append(f"There were {len(answers.problems)} warnings, the first: {answers.problems[0]}")
            if unsure := int((answers.converged == 0).sum()):
                parts.append(f"{unsure} posteriors have not converged; they are included.")
        if self.generalised:
            parts.append(
                "Read the coverage first. This is a generalised posterior: its loss is not a log likelihood, its "
                "learning rate is chosen for coverage, and its ranks need not be uniform even if nothing is wrong. A "
                "curve outside its band is a fact to know, not a failure; a 95 % region that covers 60 % is one."
            )
        return parts

    def _about_coverage(self, data: str) -> str:
        said = [
            f"{each.level:.0%} regions contain the truth in {each.rate:.0%} ({each.low:.0%} to {each.high:.0%}: "
            f"{each.verdict})"
            for each in self.coverage
            if each.data == data
        ]
        return f"On {data} data, " + "; ".join(said) + "."

    def _about_curves(self, data: str) -> str:
        curves = [each for each in self.curves if each.data == data]
        outside = [each for each in curves if each.alarm]
        rate = f"exact posteriors leave any of these {len(curves)} bands in at most {FALSE_ALARMS:.0%} of maps"
        if not outside:
            return f"Ranks, coverage and TARP stay inside their bands ({rate})."
        said = [f"{shorten(each.name)} ({each.meaning})" if each.meaning else shorten(each.name) for each in outside]
        return f"Outside their bands ({rate}): {'; '.join(said)}."

    def __repr__(self) -> str:
        said = ", ".join(f"{each.data} {each.level:.0%}: {each.rate:.1%}" for each in self.coverage)
        return f"CalibrationMap({self.label}, {self.datasets} data sets, {said})"


def _known(values: Float[np.ndarray, " k"]) -> Float[np.ndarray, " j"]:
    return values[~np.isnan(values)]
