"""Lines and columns of a table of scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nsmbayes.experiments import paper
from nsmbayes.experiments.paper import Printed
from nsmbayes.experiments.rows import Row, column, mean
from nsmbayes.experiments.tables.text import pair, percent, seconds, spread
from nsmbayes.methods import METHODS

OURS, PAPERS_CHOICES, THE_PAPERS = "ours", "ours, `--preset paper`", "the paper's"


@dataclass(frozen=True)
class Line:
    """The scores of one method with one set of choices, and the corresponding numbers in the paper."""

    label: str
    choices: str
    rows: Sequence[Row]
    method: str = ""
    printed: Printed | None = None
    same_reference: bool = True
    """Whether MMD² uses the same reference posterior as the paper."""
    reason: str | None = None
    """Reason for a disagreement with the paper; None if reasons are not required."""
    floor: float | None = None
    """The smallest learning rate that the calibration may choose."""


class Column(NamedTuple):
    """A column: functions for its cell in a line of this package, and in a line of the paper."""

    title: str
    ours: Callable[[Line], str]
    theirs: Callable[[Printed], str] = lambda _: ""


def _at_floor(line: Line) -> float | None:
    """Fraction of repeats in which the calibration ended at the smallest learning rate, without meeting its target."""
    betas = column(line.rows, "beta")
    return float((betas <= line.floor * (1 + 1e-6)).mean()) if line.floor is not None and betas.size else None


def _infer_seconds(line: Line, *, compiled: bool) -> str:
    return seconds(mean([row for row in line.rows if bool(row.compiled) == compiled], "infer_s"))


SCORES = (
    Column("repeats", lambda line: str(len(line.rows))),
    Column("MSE", lambda line: spread(column(line.rows, "mse")), lambda printed: pair(printed.mse)),
    Column("MMD²", lambda line: spread(column(line.rows, "mmd2_ref")), lambda printed: pair(printed.mmd2_ref)),
    Column("coverage", lambda line: percent(mean(line.rows, "covered")), lambda printed: percent(printed.coverage)),
    Column("β at floor", lambda line: percent(_at_floor(line))),
    Column("converged", lambda line: percent(mean(line.rows, "converged"))),
    Column("train, s", lambda line: seconds(mean(line.rows, "train_s")), lambda printed: seconds(printed.train_s)),
    Column("infer, s", lambda line: _infer_seconds(line, compiled=False), lambda printed: seconds(printed.infer_s)),
    Column("with compilation, s", lambda line: _infer_seconds(line, compiled=True)),
)
PROPERTIES = (
    Column("amortised", lambda line: METHODS[line.method].amortised if line.method else ""),
    Column("guarantee", lambda line: "yes" if line.method in paper.GUARANTEED else "no" if line.method else ""),
)
