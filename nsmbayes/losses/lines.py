"""The losses of many data sets of one column at once, on the lattices of the noise levels.

After whitening, all data sets share the same lattices, weights and noise; each data set is represented by its counts at
the lattice points. So a thousand losses cost a few array operations, and their common shapes need one compilation.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsmbayes._internal.parallel import in_threads, on_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import Loss
from nsmbayes.losses.noise_levels import ROW, lattice_offsets, lattice_step, level_coefficients
from nsmbayes.surrogates import Frame, MixtureDensity
from nsmbayes.weights import Weight

_FARTHEST = 1e4  # scales from the centre; observations beyond are moved there
_ROWS, _ROWS_ON_GPU = 8, 16  # rows of points come in multiples of this


class LineLoss(Loss):
    """The total loss of a data set of one column, by lattice points in rows of the same level.

    In `LineLosses.stacked` the arrays have a row for each data set.
    """

    density: MixtureDensity
    frame: Frame
    h: Float[Array | np.ndarray, "*sets rows"]
    y: Float[Array | np.ndarray, "*sets rows points"]
    on_squares: Float[Array | np.ndarray, "*sets rows points"]
    """Factor of the squared score and of twice the Laplacian: counts times w^2."""
    on_scores: Float[Array | np.ndarray, "*sets rows points"]
    """Factor of twice the score: counts times the derivative of w^2."""

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """Sum over the observations."""
        return self.at_points(theta).sum()

    def at_points(self, theta: Float[Array, " d_theta"]) -> Float[Array, "rows points"]:
        """The contribution of each point."""
        frame, h, y = Frame(*map(jnp.asarray, self.frame)), jnp.asarray(self.h), jnp.asarray(self.y)
        score, laplacian = self.density.in_frame(theta, frame).line_derivatives(h, y, products=on_processor())
        return jnp.asarray(self.on_squares) * (score**2 + 2 * laplacian) + 2 * self.on_scores * score

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """Not available: only the sum over the observations is known."""
        del theta
        raise ValueError("This loss knows the sum over its observations only.")


class LineLosses(NamedTuple):
    """The losses of several data sets, padded to the same number of rows."""

    stacked: LineLoss
    rows: Int[np.ndarray, " sets"]
    """Number of rows of each data set; the others are padding."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def axes(self) -> Any:
        """The arrays of `stacked` that have a row for each data set, as `in_axes` of `jax.vmap`."""
        every = jax.tree.map(lambda _: 0, self.stacked)
        return eqx.tree_at(lambda loss: loss.density, every, None)

    def only(self, some: Int[np.ndarray, " k"]) -> "LineLosses":
        """Select some data sets; on a processor without unneeded rows (a GPU would have to compile again)."""
        rows = self.rows[some]
        most = rows.max() if on_processor() else None
        density, frame, *parts = (getattr(self.stacked, field.name) for field in dataclasses.fields(LineLoss))
        cut = [part[some, :most] for part in parts]
        return LineLosses(LineLoss(density, Frame(*(a[some] for a in frame)), *cut), rows)

    def split(self, kept: Bool[np.ndarray, "sets rows points"]) -> tuple["LineLosses", "LineLosses"]:
        """Split into the losses at the points to keep, in as few rows as they need, and those at all other points."""
        loss, shape = self.stacked, (len(self), -1)
        levels, level = np.unique(loss.h, return_inverse=True)
        level = np.repeat(level.reshape(shape), ROW, axis=1)
        places, there, rows = _in_rows(level, kept.reshape(shape))
        y, on_squares, on_scores = (
            np.take_along_axis(np.asarray(part).reshape(shape), places, axis=1).reshape(len(self), -1, ROW)
            for part in (loss.y, loss.on_squares, loss.on_scores)
        )
        there = there.reshape(y.shape)
        h = levels[np.take_along_axis(level, places, axis=1)[:, ::ROW]]
        some = LineLoss(loss.density, loss.frame, h, y, there * on_squares, there * on_scores)
        others = dataclasses.replace(loss, on_squares=~kept * loss.on_squares, on_scores=~kept * loss.on_scores)
        return LineLosses(some, rows), LineLosses(others, self.rows)


class Whitened(NamedTuple):
    """The concatenated observations of several data sets of one column, each in units of its own scale."""

    y: Float[np.ndarray, " total"]
    sizes: tuple[int, ...]
    location: Float[np.ndarray, " sets"]
    scale: Float[np.ndarray, " sets"]

    @classmethod
    def of(
        cls, x: list[Float[np.ndarray, "_ 1"]], location: Float[np.ndarray, " sets"], scale: Float[np.ndarray, " sets"]
    ) -> "Whitened":
        """y = (x - location) / scale."""
        sizes = tuple(map(len, x))
        rows = np.concatenate(x)[:, 0]
        return cls((rows - np.repeat(location, sizes)) / np.repeat(scale, sizes), sizes, location, scale)

    @property
    def clipped(self) -> Float[np.ndarray, " total"]:
        """The observations, with very distant ones moved to a common distance."""
        return np.clip(self.y, -_FARTHEST, _FARTHEST)

    @double_precision
    def overall(self, weight: Weight) -> Float[np.ndarray, " total"]:
        """The overall weight of each observation, which all noise levels share."""
        return np.asarray(_overall(weight, jnp.asarray(_padded(np.abs(self.y)))))[: len(self.y)]

    @double_precision
    def counts(self, weight: Weight) -> list[Float[np.ndarray, " _"]]:
        """The weight of each observation without noise: its overall weight times w^2."""
        r = jnp.asarray(_padded(np.abs(self.y)))
        total = self.overall(weight) * np.asarray(_squared(weight, r, jnp.zeros_like(r))[0])[: len(self.y)]
        return np.split(total, np.cumsum(self.sizes)[:-1])


@double_precision
def line_losses(density: MixtureDensity, weight: Weight, noise_levels: tuple[float, ...], data: Whitened) -> LineLosses:
    """The losses of all data sets; each equals `NSMSetting.loss` in coordinates whitened by its location and scale."""
    own = np.repeat(np.arange(len(data.sizes)), data.sizes)
    lattices = _Lattices.of(np.asarray(noise_levels), data.clipped, own, data.overall(weight), len(data.sizes))
    some = _padded(lattices.y), _padded(lattices.h)
    w2, gradient = (np.asarray(part)[: len(lattices.y)] for part in _squared(weight, *map(jnp.asarray, some)))
    level = np.searchsorted(np.asarray(noise_levels), lattices.h)
    places, there, rows = _in_rows(np.broadcast_to(level, lattices.counts.shape), lattices.counts != 0)
    counts = np.where(there, np.take_along_axis(lattices.counts, places.reshape(len(places), -1), 1), 0.0)
    shape = (len(places), -1, ROW)
    places, counts = places.reshape(shape), counts.reshape(shape)
    offset: Any = data.location[:, None]
    basis: Any = data.scale[:, None, None]
    h, y = lattices.h[places[..., 0]], lattices.y[places]
    loss = LineLoss(density, Frame(offset, basis), h, y, counts * w2[places], counts * gradient[places])
    return LineLosses(loss, rows)


def _whole_rows(rows: np.ndarray) -> np.ndarray:
    """Round up to a multiple, so that few shapes are compiled; a larger one on a GPU, where compilation is slower."""
    step = _ROWS if on_processor() else _ROWS_ON_GPU
    return -(-rows // step) * step


def _in_rows(
    level: Int[np.ndarray, "sets places"], used: Bool[np.ndarray, "sets places"]
) -> tuple[Int[np.ndarray, "sets more_places"], Bool[np.ndarray, "sets more_places"], Int[np.ndarray, " sets"]]:
    """Arrange the used places of each set in rows of one level each.

    Returns the places, which of them are not repeats, and the number of rows of each set. The level must not decrease
    from one place of a set to the next. Rows are filled up with repeats of their last place.
    """
    sets, levels = len(used), int(level.max()) + 1
    of_set, found = np.nonzero(used)
    group = of_set * levels + level[of_set, found]
    sizes = np.bincount(group, minlength=sets * levels)
    lengths = (-(-sizes // ROW) * ROW).reshape(sets, levels)
    rows = _whole_rows(np.maximum(lengths.sum(axis=1) // ROW, 1))
    width = int(rows.max()) * ROW
    begins = np.cumsum(lengths, axis=1) - lengths + width * np.arange(sets)[:, None]
    first = np.cumsum(sizes) - sizes
    target = begins.ravel()[group] + np.arange(len(found)) - first[group]
    places, there = np.zeros(sets * width, int), np.zeros(sets * width, bool)
    last = found[np.maximum(first + sizes, 1) - 1].reshape(sets, levels)
    lengths[:, -1] += width - lengths.sum(axis=1)
    places[:] = np.repeat(last.ravel(), lengths.ravel())
    places[target], there[target] = found, True
    return places.reshape(sets, width), there.reshape(sets, width), rows


class _Lattices(NamedTuple):
    """The points of all levels at which some data set has counts, and the counts of each data set there."""

    h: Float[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]
    counts: Float[np.ndarray, "sets points"]

    @classmethod
    def of(cls, levels: np.ndarray, y: np.ndarray, own: np.ndarray, overall: np.ndarray, sets: int) -> "_Lattices":
        """Use the trapezoidal rule for every observation, as in `noise_levels`."""

        def at(level: float, coefficient: float) -> tuple[np.ndarray, ...]:
            step = lattice_step(level)
            numbers = np.rint(y / step).astype(int)[:, None] + lattice_offsets()
            weight = np.exp(-0.5 * ((step * numbers - y[:, None]) / level) ** 2)
            weight *= (coefficient * overall / weight.sum(axis=1))[:, None]
            points, index = _distinct(numbers)
            totals = np.bincount((own[:, None] * len(points) + index).ravel(), weight.ravel(), sets * len(points))
            return np.full(len(points), level), step * points, totals.reshape(sets, -1)

        parts = in_threads(at, levels, level_coefficients(levels))
        return cls(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def _distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted distinct numbers, and the index of each entry among them."""
    low, high = numbers.min(), numbers.max()
    if high - low > 50 * numbers.size:  # too wide for a table
        found, index = np.unique(numbers, return_inverse=True)
        return found, index.reshape(numbers.shape)
    present = np.zeros(high - low + 1, bool)
    present[numbers - low] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[numbers - low]


def _padded(values: np.ndarray) -> np.ndarray:
    """Pad with ones up to a power of two, so that few shapes are compiled."""
    return np.pad(values, (0, (1 << (len(values) - 1).bit_length()) - len(values)), constant_values=1.0)


@eqx.filter_jit
def _overall(weight: Weight, r: Float[Array, " n"]) -> Float[Array, " n"]:
    return jax.vmap(weight.overall)(r)


@eqx.filter_jit
def _squared(weight: Weight, y: Float[Array, " n"], h: Float[Array, " n"]) -> tuple[Any, Any]:
    """w^2 against the scatter of noisy observations, which is 1 + h^2 here, and its derivative in y."""

    def one(y: Float[Array, ""], h: Float[Array, ""]) -> tuple[Array, Array]:
        scale = jnp.sqrt(1 + h**2)
        value, slope = weight.squared(jnp.abs(y) / scale)
        return value, slope * jnp.sign(y) / scale

    return jax.vmap(one)(y, h)
