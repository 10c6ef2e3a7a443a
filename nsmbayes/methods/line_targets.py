"""Posteriors of some data sets of one column as targets of one compiled sampler."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsmbayes._internal.parallel import call_each, on_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.lines import LineLoss, LineLosses, Whitened, line_losses
from nsmbayes.methods.pool import Pool
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import Target
from nsmbayes.samplers.compiled import Effort, Sampled, Start, accepted_again, reweighted_starts, row_of, sample_many
from nsmbayes.samplers.summaries import ACCEPTED
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights import Weight

_TOGETHER, _FEW_ON_GPU, _TOGETHER_ON_GPU = 128, 256, 1024  # data sets that are sampled at once
_BLOCKS = 2  # so many large ones, or more, keep a GPU busy while others are prepared
_ENOUGH, _LEAST = 0.25, 0.1  # effective share of the draws below which they are drawn again, and which is no posterior
_AGAIN = 1 << 40  # added to seeds where chains accept other proposals
_WIDER = 1.5  # than what was found is the start of another attempt
_CHECKED = 16  # parameters at which it is decided which points are left out, and draws that check this
_NEGLIGIBLE = 5e-3  # nats that all points which are left out add to a loss, at most
_ON_GPU = {"stage": 192, "stages": 6}  # all data sets have as many stages there: fewer, and larger
_THOROUGH = {"stage": 288, "stages": 4, "components": 5}  # a third attempt, which is cheap on a GPU


def together(total: int) -> int:
    """How many of all data sets should be sampled at once."""
    if on_processor():
        return _TOGETHER
    return _FEW_ON_GPU if total < _BLOCKS * _TOGETHER_ON_GPU else _TOGETHER_ON_GPU


def _room(some: int) -> int:
    """For how many there is a program that takes some data sets."""
    if on_processor():
        return _TOGETHER
    return _FEW_ON_GPU if some <= _FEW_ON_GPU else _TOGETHER_ON_GPU


class LineTargets(NamedTuple):
    """Some data sets of one column, and their losses."""

    prior: UnconstrainedPrior
    weight: Weight
    data: Whitened
    losses: LineLosses
    left_out: LineLosses
    """What the points that are left out of `losses` would add: next to nothing, see `_matter`."""
    starts: Start
    effort: Effort
    seed: int

    @classmethod
    def of(
        cls,
        prior: UnconstrainedPrior,
        weight: Weight,
        noise_levels: tuple[float, ...],
        x: list[Float[np.ndarray, "_ 1"]],
        centres: list[LocationScatter],
        pool: Pool,
        effort: Effort,
        seed: int,
    ) -> "LineTargets":
        """With their losses, and with the weighted likelihood of a part of the rows to say where posteriors are."""
        location = np.array([np.asarray(one.location).item() for one in centres])
        data = Whitened.of(x, location, np.array([np.asarray(one.factor).item() for one in centres]))
        effort = effort if on_processor() else effort._replace(**_ON_GPU)
        starts = pool.starts(x, data.counts(weight), seed, _room(len(x)))
        every = line_losses(pool.density, weight, noise_levels, data)
        near = starts.draws(_CHECKED, np.random.default_rng(seed))
        losses, left_out = every.split(_matter(_over_points(every, constrain_rows(prior, near)).largest))
        return cls(prior, weight, data, losses, left_out, starts, effort, seed)

    @double_precision
    def sample(
        self, betas: Float[np.ndarray, " k"], drawn: Sampled | None = None
    ) -> tuple[Sampled, Bool[np.ndarray, " k"]]:
        """Draws of every posterior at its learning rate, and whether the sampler has arrived there.

        With what was `drawn` at other learning rates, from the same proposals. What has few effective draws is drawn
        again, from what was found.
        """
        everything = np.arange(len(self.losses))
        if drawn is None:
            kept = self._drawn(everything, betas, self.starts, self.effort, self.seed)
        else:
            kept = accepted_again(drawn, betas, self.seed + _AGAIN + everything)
        worth = self._worth(kept)
        efforts = [self.effort] + [self.effort._replace(**_THOROUGH)] * (not on_processor())
        todo, latest = everything, kept
        for attempt, effort in enumerate(efforts, 1 if drawn is None else len(efforts) + 1):
            low = self._worth(latest) < _ENOUGH
            if not low.any():
                break
            todo, latest = todo[low], latest.only(low)
            means, covariances = reweighted_starts(latest, betas[todo])
            starts = Start(means, _WIDER * covariances)
            latest = self._drawn(todo, betas[todo], starts, effort, self.seed + 1000 * attempt)
            now = self._worth(latest)
            better = now >= worth[todo]
            worth[todo[better]] = now[better]
            if better.any():
                kept = kept.replaced(todo[better], latest.only(better))
        return kept, (worth >= _LEAST) & (self.error(kept.positions, betas) <= ACCEPTED)

    def error(
        self, positions: Float[np.ndarray, "k chains draws d"], betas: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " k"]:
        """The standard deviation, over draws of each posterior, of what its log density lacks."""
        draws = positions.reshape(len(positions), -1, positions.shape[-1])
        some = draws[:, np.linspace(0, draws.shape[1] - 1, _CHECKED).astype(int)]
        return betas * _over_points(self.left_out, constrain_rows(self.prior, some)).total.std(axis=1)

    def _worth(self, drawn: Sampled) -> Float[np.ndarray, " k"]:
        """The effective share of the draws; nothing where the sampler has not arrived."""
        return np.where(drawn.temperature == 1, drawn.ess / (self.effort.chains * self.effort.draws), 0.0)

    @property
    def axes(self) -> Any:
        """Which arrays of `targets` have a row for each data set."""
        return Target(None, self.losses.axes, 0)  # pyright: ignore[reportArgumentType]

    def targets(self, some: Int[np.ndarray, " k"], betas: Float[np.ndarray, " k"]) -> Target:
        """The posteriors of some data sets, stacked."""
        return Target(self.prior, self.losses.only(some).stacked, betas)

    def _drawn(
        self, some: Int[np.ndarray, " k"], betas: Float[np.ndarray, " k"], starts: Start, effort: Effort, seed: int
    ) -> Sampled:
        """Draws of the posteriors of some data sets, in calls of few different shapes."""
        parts: list[tuple[np.ndarray, Sampled]] = []
        for places in self._alike(some):
            mine = some[places]
            found = sample_many(
                self.targets(mine, betas[places]),
                self.axes,
                Start(starts.mean[places], starts.covariance[places]),
                seed + mine,
                effort,
            )
            parts.append((places, found))
        if len(parts) == 1:  # large arrays, which are not copied
            return parts[0][1].only(slice(len(some)))
        order = np.concatenate([places for places, _ in parts])
        first = np.unique(order, return_index=True)[1]  # without those that are there to fill up
        return Sampled(*(np.concatenate(each)[first] for each in zip(*(found for _, found in parts), strict=True)))

    def _alike(self, some: Int[np.ndarray, " k"]) -> Iterator[Int[np.ndarray, " _"]]:
        """Places of data sets with as many rows; on a GPU of all, filled up with repeats."""
        if on_processor():
            rows = self.losses.rows[some]
            yield from (np.flatnonzero(rows == size) for size in np.unique(rows))
            return
        size = _room(len(some))
        for start in range(0, len(some), size):
            yield np.minimum(np.arange(start, start + size), len(some) - 1)


class _OverPoints(NamedTuple):
    """What the points add to the loss of a data set, at some parameters."""

    largest: Float[Any, "*sets rows points"]
    """What each adds at the parameter at which its size is largest."""
    total: Float[Any, "*sets t"]
    """The sum over points."""


def _over_points(losses: LineLosses, theta: Float[np.ndarray, "sets t d_theta"]) -> _OverPoints:
    """That of every data set, at parameters of each."""
    every = (losses.axes, 0)
    if on_processor():
        arguments = [row_of((losses.stacked, theta), every, i) for i in range(len(losses))]
        return _OverPoints(*map(np.stack, zip(*call_each(_of_one, arguments), strict=True)))
    return call_each(_of_each, [(losses.stacked, theta)], every)[0]


def _of_one(loss: LineLoss, theta: Float[Array, "t d_theta"]) -> _OverPoints:
    values = jax.vmap(loss.at_points)(theta)
    sizes = jnp.where(jnp.isfinite(values), jnp.abs(values), jnp.inf)
    return _OverPoints(sizes.max(axis=0), values.sum(axis=(1, 2)))


def _of_each(loss, theta, every):
    return jax.vmap(_of_one, in_axes=every)(loss, theta)


def _matter(largest: Float[np.ndarray, "sets rows points"]) -> Bool[np.ndarray, "sets rows points"]:
    """All points but those that together add a negligible number to the loss, at any of the parameters.

    About half of the points are left out: those far from the bulk, or far from the observations that count there.
    """
    flat = largest.reshape(len(largest), -1)
    order = flat.argsort(axis=1)
    needed = np.take_along_axis(flat, order, axis=1).cumsum(axis=1) > _NEGLIGIBLE
    needed[:, -1] = True
    kept = np.empty_like(needed)
    np.put_along_axis(kept, order, needed, axis=1)
    return kept.reshape(largest.shape)
