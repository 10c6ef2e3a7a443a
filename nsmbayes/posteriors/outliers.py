"""Which observations a posterior distrusts, and how much each of them matters: a table."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from nsmbayes.weights.excess import Factor, tied

SHOWN = 15
_HALF = 0.5  # factor below which the number of observations is named as a reason


@dataclass(frozen=True, kw_only=True)
class Outlier:
    """One observation."""

    row: int
    value: Float[np.ndarray, " d_x"]
    weight: float
    reason: str
    """Why its weight is low; empty if it is not."""
    influence: float
    """KL(posterior || posterior without it); NaN where that is not known"""
    reliable: bool
    """Whether the influence can be relied on: from draws it cannot where few of them would count without it."""

    def cells(self) -> tuple[str, ...]:
        """As text: row, value, weight, reason, influence."""
        more = "" if self.reliable else ", perhaps more"
        value = ", ".join(f"{entry:.4g}" for entry in self.value)
        influence = "" if np.isnan(self.influence) else f"{self.influence:.2g}{more}"
        return str(self.row), value, f"{self.weight:.2g}", self.reason, influence


def reasons_by_number(
    factor: Factor, x: Float[np.ndarray, "n d_x"], rows: Int[np.ndarray, " k"], far: Bool[np.ndarray, " k"]
) -> list[str]:
    """Why observations are distrusted, by their distance (`far`) or by their number; empty for one that is not."""
    ties, reasons = tied(x)[rows], []
    for row, is_far, same in zip(rows, far, ties, strict=True):
        found = ["far from the bulk"] if is_far else []
        if factor.values[row] < _HALF:
            found.append(factor.evidence(int(row)))
            if same:
                found.append(f"{same:,} of {len(x):,} have the same value")
        reasons.append("; ".join(found))
    return reasons


HEAD = ("row", "value", "weight", "reason", "influence")


def outlier_table(rows: list[Outlier]) -> str:
    """The table, to print."""
    return "\n".join(_lines([HEAD, *(row.cells() for row in rows)]))


def _lines(cells: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
