"""Very many observations of one column: observations too close for any noise level to distinguish are counted in cells.

The smallest noise level smooths the data over more than ten cells. So the error of moving an observation to the mean of
its cell is of second order: in the bulk, as if the variance of the smallest noise were a thousandth smaller.
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
"""More observations of one column than this are counted in cells."""
_PER_LEVEL = 10  # cells per smallest noise level
_STRETCH = 10.0  # in scales: farther from the centre than this, the cell width is proportional to the distance


class Cells(NamedTuple):
    """Observations of one column, counted in cells that are narrow compared with the noise.

    The number of cells is padded to a power of two, since every size is compiled; padding cells have a count of zero.
    """

    x: Float[np.ndarray, "cells 1"]
    """The mean of the observations in each cell."""
    counts: Int[np.ndarray, " cells"]
    of_row: Int[np.ndarray, " n"]
    """The cell of each observation."""

    @classmethod
    def of(cls, x: Float[np.ndarray, "n 1"], centre: LocationScatter, smallest: float) -> "Cells":
        """The cells of observations `x`; `smallest` is the smallest noise level, in units of the scale of `centre`.

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
        """The number of observations of each cell in bootstrap resamples, relative to the data."""
        drawn = rng.multinomial(self.n, self.counts / self.n, size=resamples)
        return np.where(self.counts > 0, drawn / np.maximum(self.counts, 1), 1.0)


class CountedLoss(NamedTuple):
    """The loss of observations in cells."""

    cells: Cells
    setting: NSMSetting
    one_each: NSMLoss
    """The loss with one observation in each cell, including the average of `multiples` over the cell."""

    @classmethod
    @double_precision
    def of(cls, setting: NSMSetting, cells: Cells, multiples: Float[np.ndarray, " n"] | None) -> "CountedLoss":
        """The loss with factors `multiples` of the observations, averaged over each cell."""
        loss = setting.loss(cells.x)
        if multiples is not None:
            totals = np.bincount(cells.of_row, multiples, minlength=len(cells.x))
            loss = loss.reweighted(totals / np.maximum(cells.counts, 1))
        return cls(cells, setting, loss)

    @property
    def loss(self) -> NSMLoss:
        """The loss of all observations; its `each` returns the losses of the cells."""
        return self.one_each.reweighted(self.cells.counts.astype(float))

    def blocks(self, theta: Float[np.ndarray, "k d"]) -> Iterator[Float[np.ndarray, "k cells"]]:
        """The loss of one observation of each cell, at k thetas."""
        yield losses_at([self.one_each], theta)[0]

    def by_row(self, values: Shaped[np.ndarray, " cells"]) -> Shaped[np.ndarray, " n"]:
        """The value of the cell of each observation."""
        return values[self.cells.of_row]

    def row_losses(self, theta: Float[np.ndarray, "k d"], rows: Int[np.ndarray, " r"]) -> Float[np.ndarray, "k r"]:
        """The losses of the observations in `rows` at k thetas."""
        return losses_at([self.one_each], theta)[0][:, self.cells.of_row[rows]]

    def describe(self) -> str:
        """How the loss is computed, in a sentence for users."""
        return f"Computed from {int((self.cells.counts > 0).sum()):,} cells of the {self.cells.n:,} observations."
