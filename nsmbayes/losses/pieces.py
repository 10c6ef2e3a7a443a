"""Observations that were added together, prepared for summing their statistics."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from nsmbayes.losses.blocks import BlockedLoss
from nsmbayes.losses.cells import MANY_IN_LINE, Cells, CountedLoss
from nsmbayes.losses.evaluated import NSMLoss, NSMSetting
from nsmbayes.losses.interpolated import InterpolatedLoss, Interpolation, RowLosses, Sums, coefficients_at
from nsmbayes.losses.level_sums import block_sums

_BLOCK, _SMALLEST_BLOCK = 256, 16  # largest block of observations with several columns, and smallest block of any


class Piece(NamedTuple):
    """Observations in random order, block by block; very many observations of one column are counted in cells.

    The blocks are the same whenever they are computed, since the noise of each is drawn from its number and `seed`.
    """

    source: BlockedLoss | CountedLoss
    order: Int[np.ndarray, " n"]
    """The row of each observation in the data."""

    @classmethod
    def of(
        cls, setting: NSMSetting, x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"], seed: int
    ) -> "Piece":
        """The piece of observations `x`, whose losses are multiplied by `multiples` in addition to their weights."""
        n = len(x)
        if x.shape[1] == 1 and n > MANY_IN_LINE:
            cells = Cells.of(x, setting.weighting.centre, setting.noise_levels[0])
            return cls(CountedLoss.of(setting, cells, multiples), np.arange(n))
        size = max(_SMALLEST_BLOCK, 1 << (n - 1).bit_length())
        if x.shape[1] > 1:
            size = min(size, _BLOCK)
        order = np.random.default_rng([seed, n]).permutation(n) if n > size else np.arange(n)
        return cls(BlockedLoss(setting, x[order], size, multiples[order], seed), order)

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.order)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return 1 if isinstance(self.source, CountedLoss) else -(-self.n // self.source.size)

    @property
    def in_first(self) -> int:
        """Number of observations in the first block."""
        return self.n if isinstance(self.source, CountedLoss) else min(self.n, self.source.size)

    def block(self, number: int) -> NSMLoss:
        """The loss of one block, with the surrogate itself."""
        return self.source.loss if isinstance(self.source, CountedLoss) else self.source.block(number)

    def summed(self, interpolation: Interpolation, blocks: int | None = None) -> tuple[Sums, RowLosses]:
        """A and B of all observations or of the first `blocks` blocks, and the individual losses of the first block."""
        levels, first = len(interpolation.noise_levels), RowLosses.of(interpolation, self.block(0))
        total = first.sums(levels)
        for number in range(1, min(blocks or self.blocks, self.blocks)):
            total = total + block_sums(interpolation, self.block(number))
        return total, first

    def sums(self, interpolation: Interpolation) -> Sums:
        """A and B of all observations."""
        total = block_sums(interpolation, self.block(0))
        for number in range(1, self.blocks):
            total = total + block_sums(interpolation, self.block(number))
        return total

    def resample_counts(self, resamples: int, rng: np.random.Generator) -> Float[np.ndarray, "resamples units"]:
        """Weights of the units of the first block in bootstrap resamples of all observations, relative to the data.

        If there are more blocks, the deviations of a resample of the first block, multiplied by sqrt(n / m), stand for
        those of all observations.
        """
        if isinstance(self.source, CountedLoss):
            return self.source.cells.resample_counts(resamples, rng)
        m = self.in_first
        counts = np.ones((resamples, self.source.size))
        drawn = rng.multinomial(m, np.full(m, 1 / m), size=resamples)
        counts[:, :m] = 1 + np.sqrt(self.n / m) * (drawn - 1)
        return counts

    def each(self, loss: InterpolatedLoss, theta: Float[np.ndarray, "k d"]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The losses (k, rows) of the observations at k thetas, block after block, and the indices of their rows."""
        coefficients = coefficients_at(loss.interpolation, theta)
        if isinstance(self.source, CountedLoss):
            found = RowLosses.of(loss.interpolation, self.source.one_each).at_many(coefficients)
            yield found[:, self.source.cells.of_row], self.order
            return
        for number in range(self.blocks):
            rows = self.order[number * self.source.size : (number + 1) * self.source.size]
            found = RowLosses.of(loss.interpolation, self.block(number)).at_many(coefficients)
            yield found[:, : len(rows)], rows
