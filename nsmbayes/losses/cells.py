"""Very many observations of one column: those that no noise level can tell apart are counted, not kept.

The smallest noise level smooths the data over more than ten cells, so that what an observation loses by standing at its
cell's mean is of second order: in the bulk, as if the smallest noise had a thousandth less of its variance.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.blocks import losses_at
from nsmbayes.losses.evaluated import NSMLoss, NSMSetting
from nsmbayes.scatter import LocationScatter

MANY_IN_LINE = 5000
"""Observations of one column above which they are counted in cells."""
_PER_LEVEL = 10  # cells to the smallest noise level
_STRETCH = 10.0  # scales from the centre beyond which cells grow in proportion to the distance


class Cells(NamedTuple):
    """Observations of one column, counted where they are closer together than the noise can tell.

    The number of cells is padded to a power of two, since every size is compiled; cells of padding count nothing.
    """

    x: Float[np.ndarray, "cells 1"]
    """The mean of the observations in each cell."""
    counts: Int[np.ndarray, " cells"]
    of_row: Int[np.ndarray, " n"]
    """The cell of each observation."""

    @classmethod
    def of(cls, x: Float[np.ndarray, "n 1"], centre: LocationScatter, smallest: float) -> "Cells":
        """Those of observations `x`; `smallest` is the smallest noise level, in units of the scale of `centre`.

        Example:
            >>> from nsmbayes.scatter import LocationScatter
            >>> unit = LocationScatter.from_scatter(np.zeros(1), np.eye(1), "mad")
            >>> Cells.of(np.array([[0.0], [0.001], [5.0]]), unit, 0.1).counts[:2]
            array([2, 1])
        """
        scale = float(np.sqrt(centre.scatter[0, 0]))
        offsets = (x[:, 0] - float(centre.location[0])) / scale
        stretched = _STRETCH * np.arcsinh(offsets / _STRETCH)
        _, index = np.unique(np.rint(stretched * _PER_LEVEL / smallest), return_inverse=True)
        counts = np.bincount(index)
        means = np.bincount(index, x[:, 0] / counts[index])  # divided first: sums of huge values overflow
        padding = (1 << (len(counts) - 1).bit_length()) - len(counts)
        padded = np.concatenate([means, np.full(padding, means[0])])
        return cls(padded[:, None], np.concatenate([counts, np.zeros(padding, int)]), index)

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.of_row)

    def resample_counts(self, resamples: int, rng: np.random.Generator) -> Float[np.ndarray, "resamples cells"]:
        """How many observations of each cell bootstrap resamples have, relative to the data."""
        drawn = rng.multinomial(self.n, self.counts / self.n, size=resamples)
        return np.where(self.counts > 0, drawn / np.maximum(self.counts, 1), 1.0)


class CountedLoss(NamedTuple):
    """The loss of observations in cells."""

    cells: Cells
    setting: NSMSetting
    one_each: NSMLoss
    """The loss with one observation in each cell, what they count by their number included."""

    @classmethod
    @double_precision
    def of(cls, setting: NSMSetting, cells: Cells, multiples: Float[np.ndarray, " n"] | None) -> "CountedLoss":
        """With `multiples`, what observations count beside their weight: on average over each cell."""
        loss = setting.loss(cells.x)
        if multiples is not None:
            totals = np.bincount(cells.of_row, multiples, minlength=len(cells.x))
            loss = loss.reweighted(totals / np.maximum(cells.counts, 1))
        return cls(cells, setting, loss)

    @property
    def loss(self) -> NSMLoss:
        """The loss of all observations; `each` gives those of cells."""
        return self.one_each.reweighted(self.cells.counts.astype(float))

    def blocks(self, theta: Float[np.ndarray, "k d"]) -> Iterator[Float[np.ndarray, "k cells"]]:
        """The loss of one observation of each cell, at k thetas."""
        yield losses_at([self.one_each], theta)[0]

    def by_row(self, values: Shaped[np.ndarray, " cells"]) -> Shaped[np.ndarray, " n"]:
        """Values of cells, for each of their observations."""
        return values[self.cells.of_row]

    def row_losses(self, theta: Float[np.ndarray, "k d"], rows: Int[np.ndarray, " r"]) -> Float[np.ndarray, "k r"]:
        """The losses of some of the observations."""
        return losses_at([self.one_each], theta)[0][:, self.cells.of_row[rows]]

    def describe(self) -> str:
        """One sentence."""
        return f"Computed from {int((self.cells.counts > 0).sum()):,} cells of the {self.cells.n:,} observations."
