"""The losses of many data sets of one column at once: what each makes of the lattices of the noise levels.

Whitened observations of all data sets have the same lattices, weights and noise; a data set is what it counts at their
points. So a thousand losses cost a few array operations, and have shapes in common, hence one compilation.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import Loss
from nsmbayes.losses.noise_levels import ROW, lattice_offsets, lattice_step, level_coefficients
from nsmbayes.surrogates import Frame, MixtureDensity
from nsmbayes.weights import Weight

_FARTHEST = 1e4  # scales from the centre beyond which a place is no longer told from another
_ROWS = 8  # rows of points come in multiples of this


class LineLoss(Loss):
    """The sum of the losses of a data set of one column, at the points where it counts, in rows of the same level."""

    density: MixtureDensity
    frame: Frame
    h: Float[Array | np.ndarray, " rows"]
    y: Float[Array | np.ndarray, "rows points"]
    on_squares: Float[Array | np.ndarray, "rows points"]
    """What the square of the score and twice the Laplacian are multiplied by: counts times w^2."""
    on_scores: Float[Array | np.ndarray, "rows points"]
    """And twice the score: counts times the derivative of w^2."""

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """Sum over the observations."""
        frame, h, y = Frame(*map(jnp.asarray, self.frame)), jnp.asarray(self.h), jnp.asarray(self.y)
        score, laplacian = self.density.in_frame(theta, frame).line_derivatives(h, y)
        return (self.on_squares * (score**2 + 2 * laplacian) + 2 * self.on_scores * score).sum()

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """Not known: only the sum over the observations is."""
        del theta
        raise ValueError("This loss knows the sum over its observations only.")


class Whitened(NamedTuple):
    """The observations of several data sets of one column below one another, each in units of its own scale."""

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

    @double_precision
    def counts(self, weight: Weight) -> list[Float[np.ndarray, " _"]]:
        """What each observation counts without noise: its overall weight times w^2."""
        r = jnp.asarray(_padded(np.abs(self.y)))
        total = np.asarray(_overall(weight, r)) * np.asarray(_squared(weight, r, jnp.zeros_like(r))[0])
        return np.split(total[: len(self.y)], np.cumsum(self.sizes)[:-1])


@double_precision
def line_losses(
    density: MixtureDensity, weight: Weight, noise_levels: tuple[float, ...], data: Whitened, *, alike: bool = False
) -> list[LineLoss]:
    """The loss of every data set, as by `NSMSetting.loss` with coordinates whitened by its location and scale.

    If they are to be `alike`, all have as many rows, so that one call can evaluate all of them.
    """
    y, own = data.y, np.repeat(np.arange(len(data.sizes)), data.sizes)
    overall = np.asarray(_overall(weight, jnp.asarray(_padded(np.abs(y)))))[: len(y)]
    lattices = _Lattices.of(np.asarray(noise_levels), np.clip(y, -_FARTHEST, _FARTHEST), own, overall, len(data.sizes))
    some = _padded(lattices.y), _padded(lattices.h)
    w2, gradient = (np.asarray(part)[: len(lattices.y)] for part in _squared(weight, *map(jnp.asarray, some)))
    starts = np.searchsorted(lattices.h, noise_levels)
    places = [_in_rows(starts, counts) for counts in lattices.counts]
    if alike:
        most = max(len(used) for used, _ in places)
        places = [_with_rows(*each, most - len(each[0])) for each in places]
    found = []
    for location, scale, counts, (used, there) in zip(data.location, data.scale, lattices.counts, places, strict=True):
        offset: Any = np.array([location])
        basis: Any = np.array([[scale]])
        count = np.where(there, counts[used], 0.0)
        found.append(
            LineLoss(
                density,
                Frame(offset, basis),
                lattices.h[used[:, 0]],
                lattices.y[used],
                count * w2[used],
                count * gradient[used],
            )
        )
    return found


def _in_rows(starts: Int[np.ndarray, " levels"], counts: Float[np.ndarray, " points"]) -> tuple[np.ndarray, np.ndarray]:
    """Places of the points that count, in rows of one level each; and which of them are no repeats of the last.

    The points of a level are those from its start to the next one.
    """
    used = np.flatnonzero(counts)
    edges = np.append(np.searchsorted(used, starts), len(used))
    sizes = np.diff(edges)
    lengths = -(-sizes // ROW) * ROW
    last = used[np.maximum(edges[1:], 1) - 1]
    places, there = np.repeat(last, lengths), np.zeros(lengths.sum(), bool)
    moved = np.cumsum(lengths) - lengths - edges[:-1]
    target = np.arange(len(used)) + np.repeat(moved, sizes)
    places[target], there[target] = used, True
    rows, real = places.reshape(-1, ROW), there.reshape(-1, ROW)
    return _with_rows(rows, real, -len(rows) % _ROWS)


def _with_rows(places: np.ndarray, there: np.ndarray, more: int) -> tuple[np.ndarray, np.ndarray]:
    """With more rows, which count nothing."""
    if not more:
        return places, there
    return (
        np.concatenate([places, np.repeat(places[-1:], more, axis=0)]),
        np.concatenate([there, np.zeros((more, ROW), bool)]),
    )


class _Lattices(NamedTuple):
    """The points of all levels that some data set counts at, and what each data set counts there."""

    h: Float[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]
    counts: Float[np.ndarray, "sets points"]

    @classmethod
    def of(cls, levels: np.ndarray, y: np.ndarray, own: np.ndarray, overall: np.ndarray, sets: int) -> "_Lattices":
        """With the trapezoidal rule for every observation, as in `noise_levels`."""
        parts: list[tuple[np.ndarray, ...]] = []
        for level, coefficient in zip(levels, level_coefficients(levels), strict=True):
            step = lattice_step(level)
            numbers = np.rint(y / step).astype(int)[:, None] + lattice_offsets()
            weight = np.exp(-0.5 * ((step * numbers - y[:, None]) / level) ** 2)
            weight *= (coefficient * overall / weight.sum(axis=1))[:, None]
            points, index = _distinct(numbers)
            totals = np.bincount((own[:, None] * len(points) + index).ravel(), weight.ravel(), sets * len(points))
            parts.append((np.full(len(points), level), step * points, totals.reshape(sets, -1)))
        return cls(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def _distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers in order, and the place of each entry among them."""
    low, high = numbers.min(), numbers.max()
    if high - low > 50 * numbers.size:  # too wide for a table
        found, index = np.unique(numbers, return_inverse=True)
        return found, index.reshape(numbers.shape)
    present = np.zeros(high - low + 1, bool)
    present[numbers - low] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[numbers - low]


def _padded(values: np.ndarray) -> np.ndarray:
    """With ones up to a power of two, so that few shapes are compiled."""
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
