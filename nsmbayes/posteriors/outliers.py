"""Which observations a posterior distrusts, and how much each of them matters: a table."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

SHOWN = 15


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


HEAD = ("row", "value", "weight", "reason", "influence")


def outlier_table(rows: list[Outlier]) -> str:
    """The table, to print."""
    return "\n".join(_lines([HEAD, *(row.cells() for row in rows)]))


def _lines(cells: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
