"""The loss of very many observations, in blocks, so that only a few blocks are in memory at once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import call_each, cores, on_processor
from nsmbayes.losses.evaluated import Loss, NSMLoss, NSMSetting

AT_ONCE = 16
"""Number of thetas in one compiled call: one shape, hence one compilation."""
_WIDE, _FROM = 2000, 20_000  # block size for totals of at least this many observations: fewer blocks are faster


class BlockedLoss(NamedTuple):
    """The loss of observations in several columns, block by block.

    Every block has its own quadrature nodes for the noise, with its number as seed, so that a block is the same
    whenever it is computed. The last block is padded to the size of the others.
    """

    setting: NSMSetting
    x: Float[np.ndarray, "n d_x"]
    size: int
    """Number of observations in a block."""
    multiples: Float[np.ndarray, " n"] | None = None
    """A factor for the loss of each observation, in addition to its weight; 1 by default."""
    seed: int = 0
    """Seed of the nodes, in addition to the number of the block."""

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.x)

    def block(self, number: int) -> NSMLoss:
        """The loss of one block; padding has weight zero."""
        mine = slice(number * self.size, (number + 1) * self.size)
        rows = self.x[mine]
        padding = self.size - len(rows)
        loss = self.setting.loss(np.concatenate([rows, np.repeat(rows[:1], padding, axis=0)]), seed=self.seed + number)
        if self.multiples is None and not padding:
            return loss
        multiples = np.ones(len(rows)) if self.multiples is None else self.multiples[mine]
        return loss.reweighted(np.concatenate([multiples, np.zeros(padding)]))

    def total(self, theta: Float[np.ndarray, "k d"], *, first: int | None = None) -> Float[np.ndarray, " k"]:
        """The loss of all observations, or of the first `first` observations, at k thetas.

        With very many observations, it is computed in wider blocks, which have other nodes for the noise.
        """
        many = (self.n if first is None else first) >= _FROM and self.size < _WIDE
        blocked = self._replace(size=_WIDE) if many else self
        return sum((each.sum(axis=1) for each in blocked.each(theta, first=first)), np.zeros(len(theta)))

    def each(
        self, theta: Float[np.ndarray, "k d"], *, first: int | None = None
    ) -> Iterator[Float[np.ndarray, "k block"]]:
        """The losses of all, or of the first `first`, observations at k thetas, block after block."""
        last = self.n if first is None else first
        blocks, together = -(-last // self.size), 2 * cores()
        for start in range(0, blocks, together):
            losses = [self.block(number) for number in range(start, min(start + together, blocks))]
            for number, each in enumerate(losses_at(losses, theta), start):
                yield each[:, : last - number * self.size]

    def of_rows(self, theta: Float[np.ndarray, "k d"], rows: Int[np.ndarray, " r"]) -> Float[np.ndarray, "k r"]:
        """The losses of the observations in `rows` at k thetas."""
        found = np.empty((len(theta), len(rows)))
        for number in np.unique(rows // self.size):
            mine = np.flatnonzero(rows // self.size == number)
            within = rows[mine] % self.size
            padded = np.concatenate([within, np.repeat(within[:1], (1 << (len(mine) - 1).bit_length()) - len(mine))])
            [each] = losses_at([self.block(int(number)).only(padded)], theta)
            found[:, mine] = each[:, : len(mine)]
        return found


def losses_at(losses: Sequence[Loss], theta: Float[np.ndarray, "k d"]) -> list[Float[np.ndarray, "k n"]]:
    """The loss of each observation at k thetas, for several data sets of the same size; on all cores."""
    padded = np.concatenate([theta, np.repeat(theta[:1], -len(theta) % AT_ONCE, axis=0)])
    parts = padded.reshape(-1, AT_ONCE, theta.shape[1])
    found = call_each(_each, [(loss, part) for loss in losses for part in parts])
    return [np.concatenate(found[i * len(parts) : (i + 1) * len(parts)])[: len(theta)] for i in range(len(losses))]


def _each(loss: Loss, theta: Float[Array, "k d"]) -> Float[Array, "k n"]:
    return jax.lax.map(loss.each, theta, batch_size=None if on_processor() else len(theta))
