"""Training data of methods: simulations in memory, or campaigns that are read in blocks."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from nsmbayes.calls import RowStatus
from nsmbayes.losses.held_out import HeldOut
from nsmbayes.simulators.campaigns import Campaign
from nsmbayes.surrogates import Scalers
from nsmbayes.training import Block, Stream, TrainingSettings, held_out_rows

MOST_IN_MEMORY = 20_000_000
"""Campaigns with up to this many numbers, in theta and x together, are read into memory for training."""
_BLOCK = 131_072  # rows that are shuffled together
_UNIT = 16_384  # rows that are read together
_FEWEST = 20  # minimum number of units of a campaign
_SAMPLE = 262_144  # rows that determine the scales
_MOST_HELD_OUT, _FEW_HELD_OUT = 20_000, 10_000  # simulations kept to check a network: for one column, for very many

Dequantise = Callable[..., Float[np.ndarray, "m d_x"]]


class Unit(NamedTuple):
    """Some rows of a campaign."""

    campaign: Campaign
    number: int
    start: int
    stop: int


class StoredSimulations:
    """The valid rows of campaigns, read in units. The caller must already have accepted the loss of failed rows."""

    def __init__(self, campaigns: list[Campaign], dequantise: Dequantise, seed: int):
        self.dequantise, self.seed = dequantise, seed
        self.units: list[Unit] = []
        for campaign in campaigns:
            size = _unit(campaign)
            self.units += [
                Unit(campaign, len(self.units) + i, start, min(start + size, len(campaign)))
                for i, start in enumerate(range(0, len(campaign), size))
            ]
        self.counts = np.zeros(len(self.units), dtype=int)
        lows, highs, sample, kept = [], [], [], 0
        for unit in self.units:
            theta, x = self.read(unit)
            self.counts[unit.number] = len(theta)
            if len(theta):
                lows.append((theta.min(axis=0), x.min(axis=0)))
                highs.append((theta.max(axis=0), x.max(axis=0)))
            if kept < _SAMPLE:
                sample.append((theta, x))
                kept += len(theta)
        self.theta_range, self.x_range = (
            np.stack([np.min([low[j] for low in lows], axis=0), np.max([high[j] for high in highs], axis=0)])
            for j in (0, 1)
        )
        self.sample: Block = tuple(map(np.concatenate, zip(*sample, strict=True)))  # pyright: ignore

    def read(self, unit: Unit) -> Block:
        """Read theta and x of the valid rows of a unit."""
        rows = unit.campaign.rows(unit.start, unit.stop)
        valid = rows.status == RowStatus.VALID
        return rows.theta[valid], self.dequantise(rows.x[valid], self.seed, 0, unit.number)


def _unit(campaign: Campaign) -> int:
    """Number of rows read together: whole batches if these are small, and enough units to hold some out."""
    size = min(_UNIT, -(-len(campaign) // _FEWEST))
    return size if size < campaign.batch else size // campaign.batch * campaign.batch


class Streamed(Stream):
    """A stream of stored simulations, standardised for a network."""

    def __init__(self, stored: StoredSimulations, scalers: Scalers, held_out: float):
        self._stored, self._scalers = stored, scalers
        order = np.random.default_rng((stored.seed, 0)).permutation(len(stored.units))
        count = max(1, round(held_out * len(order)))
        self._held_out, self._training = order[:count], order[count:]

    @property
    def m(self) -> int:
        """Number of simulations to train on."""
        return int(self._stored.counts[self._training].sum())

    def training(self, epoch: int) -> Iterator[Block]:
        """Yield the training simulations: units in random order, in blocks of equal size except the last."""
        return self._blocks(np.random.default_rng((self._stored.seed, 1, epoch)).permutation(self._training))

    def held_out(self) -> Iterator[Block]:
        """Yield the held-out simulations."""
        return self._blocks(self._held_out)

    def some_held_out(self, most: int) -> Block:
        """theta and x of at most `most` held-out simulations, in the user's units."""
        parts, found = [], 0
        for number in self._held_out:
            if found < most:
                parts.append(self._stored.read(self._stored.units[number]))
                found += len(parts[-1][0])
        theta, x = map(np.concatenate, zip(*parts, strict=True))
        return theta[:most], x[:most]

    def _blocks(self, units: np.ndarray) -> Iterator[Block]:
        waiting: list[Block] = []
        for number in units:
            theta, x = self._stored.read(self._stored.units[number])
            scaled = self._scalers.theta.standardise(theta), self._scalers.x.standardise(x)
            waiting.append(tuple(array.astype(np.float32) for array in scaled))  # pyright: ignore
            if sum(len(t) for t, _ in waiting) >= _BLOCK:
                t, z = map(np.concatenate, zip(*waiting, strict=True))
                yield t[:_BLOCK], z[:_BLOCK]
                waiting = [(t[_BLOCK:], z[_BLOCK:])]
        if sum(len(t) for t, _ in waiting):
            t, z = map(np.concatenate, zip(*waiting, strict=True))
            yield t, z


class LearningData(NamedTuple):
    """Training data of a network: all simulations, or a sample if they are `stored` on disk."""

    theta: Float[np.ndarray, "m d_theta"]
    x: Float[np.ndarray, "m d_x"]
    theta_range: Float[np.ndarray, "k d_theta"]
    """Rows whose range is that of all simulations."""
    stored: StoredSimulations | None

    @property
    def x_range(self) -> Float[np.ndarray, "k d_x"]:
        """Rows whose range is that of all simulations."""
        return self.x if self.stored is None else self.stored.x_range

    def stream(self, scalers: Scalers, settings: TrainingSettings) -> Streamed | None:
        """Stream of all simulations if they are stored on disk, otherwise None."""
        return None if self.stored is None else Streamed(self.stored, scalers, settings.validation_fraction)

    def held_out(
        self, stream: Streamed | None, key: PRNGKeyArray, settings: TrainingSettings, recent: int | None = None
    ) -> HeldOut:
        """Some of the simulations that `training.fit` holds out, given the same stream, key and settings.

        Simulations from row `recent` on come first.
        """
        most = max(_FEW_HELD_OUT, _MOST_HELD_OUT // self.x.shape[1])
        if stream is not None:
            return HeldOut(*stream.some_held_out(most))
        rows = held_out_rows(key, len(self.theta), settings)
        if recent is not None:
            rows = rows[np.argsort(rows < recent, kind="stable")]
        return HeldOut(self.theta[rows[:most]], self.x[rows[:most]])
