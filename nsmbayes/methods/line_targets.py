"""The posteriors of several data sets of one column as targets of one compiled sampler."""

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
_ENOUGH, _LEAST = 0.25, 0.1  # effective share of the draws below which they are drawn again, and below which they fail
_AGAIN = 1 << 40  # added to the seeds of chains that run over known proposals
_WIDER = 1.5  # factor of the scale of the start of another attempt
_CHECKED = 16  # parameters by which the points to leave out are chosen, and draws by which the choice is checked
_NEGLIGIBLE = 5e-3  # nats that all omitted points together add to a loss, at most
_ON_GPU = {"stage": 192, "stages": 6}  # all data sets have as many stages there: fewer, and larger
_THOROUGH = {"stage": 288, "stages": 4, "components": 5}  # a third attempt, which is cheap on a GPU


def together(total: int) -> int:
    """The number of data sets to sample at once, out of `total`."""
    if on_processor():
        return _TOGETHER
    return _FEW_ON_GPU if total < _BLOCKS * _TOGETHER_ON_GPU else _TOGETHER_ON_GPU


def _room(some: int) -> int:
    """The size of the program that takes `some` data sets."""
    if on_processor():
        return _TOGETHER
    return _FEW_ON_GPU if some <= _FEW_ON_GPU else _TOGETHER_ON_GPU


class LineTargets(NamedTuple):
    """Several data sets of one column, their losses, and where their posteriors are, roughly."""

    prior: UnconstrainedPrior
    weight: Weight
    data: Whitened
    losses: LineLosses
    left_out: LineLosses | None
    """The points that are left out of `losses`, see `_matter`; None if there are none."""
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
        """Compute the losses, and locate each posterior by a weighted likelihood of a part of the rows."""
        location = np.array([np.asarray(one.location).item() for one in centres])
        data = Whitened.of(x, location, np.array([np.asarray(one.factor).item() for one in centres]))
        effort = effort if on_processor() else effort._replace(**_ON_GPU)
        starts = pool.starts(x, data.counts(weight), seed, _room(len(x)))
        losses, left_out = line_losses(pool.density, weight, noise_levels, data), None
        if on_processor():  # with a GPU the processor, which would choose the points, has enough to do
            near = starts.draws(_CHECKED, np.random.default_rng(seed))
            losses, left_out = losses.split(_matter(_over_points(losses, constrain_rows(prior, near)).largest))
        return cls(prior, weight, data, losses, left_out, starts, effort, seed)

    @double_precision
    def sample(
        self, betas: Float[np.ndarray, " k"], drawn: Sampled | None = None
    ) -> tuple[Sampled, Bool[np.ndarray, " k"]]:
        """Draw from every posterior at its learning rate; also say for which of them this succeeded.

        With `drawn`, at other learning rates, chains run over the same proposals again. Posteriors with too few
        effective draws are sampled again, from proposals fitted to the attempt before, up to twice.
        """
        everything = np.arange(len(self.losses))
        if drawn is None:
            kept = self._drawn(everything, betas, self.starts, self.effort, self.seed)
        else:
            kept = accepted_again(drawn, betas, self.seed + _AGAIN + everything)
        worth = self._worth(kept)
        efforts = [self.effort, self.effort if on_processor() else self.effort._replace(**_THOROUGH)]
        for attempt, effort in enumerate(efforts, 1 if drawn is None else len(efforts) + 1):
            todo = np.flatnonzero(worth < _ENOUGH)
            if not todo.size:
                break
            means, covariances = reweighted_starts(kept.only(todo), betas[todo])
            starts = Start(means, _WIDER * covariances)
            latest = self._drawn(todo, betas[todo], starts, effort, self.seed + (attempt << 33))
            now = self._worth(latest)
            better = now >= worth[todo]
            worth[todo[better]] = now[better]
            if better.any():
                kept = kept.replaced(todo[better], latest.only(better))
        return kept, worth >= _LEAST

    @double_precision
    def are_complete(self, drawn: Sampled, betas: Float[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
        """Whether the log density of each posterior, over its draws, hardly changes by the points that are left out."""
        if self.left_out is None:
            return np.ones(len(betas), bool)
        draws = drawn.positions.reshape(len(betas), -1, self.prior.dim)
        some = draws[:, np.linspace(0, draws.shape[1] - 1, _CHECKED).astype(int)]
        missing = betas * _over_points(self.left_out, constrain_rows(self.prior, some)).total.std(axis=1)
        return missing <= ACCEPTED

    def _worth(self, drawn: Sampled) -> Float[np.ndarray, " k"]:
        """The effective share of the draws; zero where the sampler has not reached the posterior."""
        return np.where(drawn.temperature == 1, drawn.ess / (self.effort.chains * self.effort.draws), 0.0)

    @property
    def axes(self) -> Any:
        """The arrays of `targets` that have a row for each data set, as `in_axes` of `jax.vmap`."""
        return Target(None, self.losses.axes, 0)  # pyright: ignore[reportArgumentType]

    def targets(self, some: Int[np.ndarray, " k"], betas: Float[np.ndarray, " k"]) -> Target:
        """The posteriors of some of the data sets, stacked."""
        return Target(self.prior, self.losses.only(some).stacked, betas)

    def _drawn(
        self, some: Int[np.ndarray, " k"], betas: Float[np.ndarray, " k"], starts: Start, effort: Effort, seed: int
    ) -> Sampled:
        """Draw from the posteriors of some of the data sets, in calls of few different shapes."""
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
        first = np.unique(order, return_index=True)[1]  # without the repeats that fill up a call
        return Sampled(*(np.concatenate(each)[first] for each in zip(*(found for _, found in parts), strict=True)))

    def _alike(self, some: Int[np.ndarray, " k"]) -> Iterator[Int[np.ndarray, " _"]]:
        """Groups of data sets with equal numbers of rows; on a GPU groups of equal size, filled up with repeats."""
        if on_processor():
            rows = self.losses.rows[some]
            yield from (np.flatnonzero(rows == size) for size in np.unique(rows))
            return
        size = _room(len(some))
        for start in range(0, len(some), size):
            yield np.minimum(np.arange(start, start + size), len(some) - 1)


class _OverPoints(NamedTuple):
    """The contributions of points to the loss of a data set, at several parameters."""

    largest: Float[Any, "*sets rows points"]
    """The largest absolute contribution of each point over the parameters."""
    total: Float[Any, "*sets t"]
    """The sum over points."""


def _over_points(losses: LineLosses, theta: Float[np.ndarray, "sets t d_theta"]) -> _OverPoints:
    """Evaluate every data set, at parameters of its own."""
    arguments = [row_of((losses.stacked, theta), (losses.axes, 0), i) for i in range(len(losses))]
    return _OverPoints(*map(np.stack, zip(*call_each(_of_one, arguments), strict=True)))


def _of_one(loss: LineLoss, theta: Float[Array, "t d_theta"]) -> _OverPoints:
    values = jax.vmap(loss.at_points)(theta)
    sizes = jnp.where(jnp.isfinite(values), jnp.abs(values), jnp.inf)
    return _OverPoints(sizes.max(axis=0), values.sum(axis=(1, 2)))


def _matter(largest: Float[np.ndarray, "sets rows points"]) -> Bool[np.ndarray, "sets rows points"]:
    """Select all points but those whose contributions add up to a negligible number.

    About half of the points are left out: those far from the bulk, and those at which only distant observations count.
    """
    flat = largest.reshape(len(largest), -1)
    order = flat.argsort(axis=1)
    needed = np.take_along_axis(flat, order, axis=1).cumsum(axis=1) > _NEGLIGIBLE
    needed[:, -1] = True
    kept = np.empty_like(needed)
    np.put_along_axis(kept, order, needed, axis=1)
    return kept.reshape(largest.shape)
