"""A table of the observations with low weights, with reasons and influence."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from nsmbayes.weights.excess import Factor, tied

SHOWN = 15
_HALF = 0.5  # for a smaller factor, excess is given as a reason


@dataclass(frozen=True, kw_only=True)
class Outlier:
    """One observation, with its weight, the reason for a low weight, and its influence."""

    row: int
    value: Float[np.ndarray, " d_x"]
    weight: float
    reason: str
    """Reason for a low weight; empty if the weight is not low."""
    influence: float
    """KL(posterior || posterior without this observation); NaN if it is not known"""
    reliable: bool
    """Whether the influence is reliable: from draws, only if enough effective draws remain without the observation."""

    def cells(self) -> tuple[str, ...]:
        """The cells of the table as text: row, value, weight, reason, influence."""
        more = "" if self.reliable else ", perhaps more"
        value = ", ".join(f"{entry:.4g}" for entry in self.value)
        influence = "" if np.isnan(self.influence) else f"{self.influence:.2g}{more}"
        return str(self.row), value, f"{self.weight:.2g}", self.reason, influence


def reasons_by_number(
    factor: Factor, x: Float[np.ndarray, "n d_x"], rows: Int[np.ndarray, " k"], far: Bool[np.ndarray, " k"]
) -> list[str]:
    """Reasons for low weights, by distance (`far`) or by excess; an empty string if there is none."""
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
    """Format the outliers as a table."""
    return "\n".join(_lines([HEAD, *(row.cells() for row in rows)]))


def _lines(cells: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
