"""Which observations a posterior distrusts, and how much each of them matters: a table."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes.posteriors import Posterior
from nsmbayes.robustness.influence import leave_one_out

SHOWN = 15


@dataclass(frozen=True)
class Outlier:
    """One observation."""

    index: int
    value: Float[np.ndarray, " d_x"]
    weight: float
    influence: float
    """KL(posterior || posterior without it)"""
    reliable: bool
    """Whether the influence can be relied on: from draws it cannot where few of them would count without it."""

    def cells(self) -> tuple[str, str, str, str]:
        """As text: index, value, weight, influence."""
        more = "" if self.reliable else ", perhaps more"
        value = ", ".join(f"{entry:.4g}" for entry in self.value)
        return str(self.index), value, f"{self.weight:.2g}", f"{self.influence:.2g}{more}"


def outliers(posterior: Posterior, count: int = SHOWN) -> list[Outlier]:
    """The observations with the smallest weights, at most `count` of them."""
    weights, (kl, reliable) = posterior.weights, leave_one_out(posterior)
    rows = np.argsort(weights, kind="stable")[: _checks.integer(count, "count", at_least=1)]
    return [Outlier(int(i), posterior.x[i], float(weights[i]), float(kl[i]), bool(reliable[i])) for i in rows]


def outlier_table(rows: list[Outlier]) -> str:
    """The table, to print."""
    return "\n".join(_lines([("row", "value", "weight", "influence"), *(row.cells() for row in rows)]))


def _lines(cells: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
