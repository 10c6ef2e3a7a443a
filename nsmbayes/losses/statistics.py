"""Losses of a data set under the exponential family, by sufficient statistics of a quadratic function of theta."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import dequantised
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses.noise_levels import NoisyPoints, noisy_points
from nsmbayes.losses.pointwise import Quadratic, nsm_quadratic
from nsmbayes.scatter import LocationScatter, fit_location_scatter
from nsmbayes.surrogates import ExponentialFamily, NoisyFamily
from nsmbayes.weights import Weight, Weighting, evaluate, overall_many

_BLOCK = 65536  # points in one compiled call
_ROWS = 16384  # observations of one column, each with about a hundred noisy points, that are in memory at once
_CHUNK = 512  # points whose hidden layers are in memory at once
_RULES = 16  # rules for the expectation over the noise that are averaged in two or more dimensions
_FARTHEST = 1e200  # distances are never squared, but their quotients must not overflow


class Block(NamedTuple):
    """Some observations: the points at which their losses are computed, and the weight of each point in their sum."""

    points: Any
    point_weights: Float[np.ndarray, " points"]
    rows: NoisyPoints | None  # the points of each observation; None if each observation is one point
    n: int  # number of observations; the rest is padding


class FamilyLoss(eqx.Module):
    """The loss of one observation, for a given weight and coordinates y = L^-1 (x - location)."""

    family: ExponentialFamily
    weight: Weight
    centre: LocationScatter
    basis: Float[Array | np.ndarray, "d_x d_x"]

    def __call__(self, point: Float[Array, " d_x"]) -> Quadratic:
        """The loss of one observation as a quadratic in theta."""
        family = self.family.family_derivatives(point, jnp.asarray(self.basis))
        w2, grad_w2 = evaluate(self.weight, self.centre, point)
        # Without the barrier, XLA evaluates the networks again for every sum that uses their derivatives.
        return nsm_quadratic(*jax.lax.optimization_barrier((family, w2, grad_w2 @ self.basis)))

    def blocks(self, x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"]) -> Iterator[Block]:
        """The rows of `x` in blocks of few distinct sizes, so that few programs are compiled."""
        for rows, counts, n in _padded(x, multiples, _BLOCK):
            yield Block(rows, counts, None, n)


class NoisyFamilyLoss(eqx.Module):
    """The loss summed over noise levels, in units of the robust scale of each column; see `losses.noise_levels`.

    Noise is independent between columns, so `basis` is diagonal. At level h, the weight uses distances under the
    scatter plus h^2 L L'.
    """

    family: NoisyFamily
    weight: Weight
    centre: LocationScatter
    basis: Float[Array | np.ndarray, "*batch d_x d_x"]
    smoothed: LocationScatter
    noise: Float[Array | np.ndarray, "*batch levels d_x"]
    noise_levels: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, point: tuple[Int[Array, ""], Float[Array, " d_x"]]) -> Quadratic:
        """The loss of one noisy point, given as the index of its level and its position."""
        level, x = point
        family = self.family.with_noise(jnp.asarray(self.noise)[level])
        centre = jax.tree.map(lambda a: jnp.asarray(a)[level], self.smoothed)
        return FamilyLoss(family, self.weight, centre, self.basis)(x)

    def points(self, x: Float[np.ndarray, "n d_x"]) -> tuple[Any, NoisyPoints]:
        """The noisy points of observations, as a flat array, and the points of each observation."""
        location, scale = np.asarray(self.centre.location), np.diagonal(self.basis)
        y = np.clip((x - location) / scale, -_FARTHEST, _FARTHEST)
        noisy = noisy_points(self.noise_levels, y) if x.shape[1] == 1 else _around_each(self.noise_levels, y)
        level = np.searchsorted(self.noise_levels, np.broadcast_to(noisy.h, noisy.y.shape[:2]).ravel())
        return (level, location + scale * noisy.y.reshape(-1, x.shape[1])), noisy

    def blocks(self, x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"]) -> Iterator[Block]:
        """The rows of `x` in blocks; in one dimension, rows share their noisy points, otherwise each has its own."""
        most = _ROWS
        if x.shape[1] > 1:
            most = 2 ** max(0, int(np.log2(_BLOCK / self.points(x[:1])[1].quadrature_weight.size)))
        for rows, counts, n in _padded(x, multiples, most):
            points, noisy = self.points(rows)
            with jax.enable_x64(True):  # a generator, see `each_loss`
                overall = np.asarray(overall_many(self.weight, self.centre, jnp.asarray(rows)))
            noisy = noisy._replace(quadrature_weight=noisy.quadrature_weight * (overall * counts)[:, None])
            yield Block(points, noisy.total_weights().ravel(), noisy, n)


def _around_each(levels: tuple[float, ...], y: Float[np.ndarray, "n d"]) -> NoisyPoints:
    """The same nodes around every observation, so that its loss does not depend on the other observations.

    They are the combined nodes of several rules, each of which is that of an observation at the origin.
    """
    (n, d), rule = y.shape, noisy_points(levels, np.zeros((_RULES, y.shape[1])))
    weights = rule.total_weights() / _RULES
    points = y[:, None] + rule.y[:, None]
    index = np.arange(n * weights.size).reshape(len(levels), n, -1).transpose(1, 0, 2).reshape(n, -1)
    return NoisyPoints(rule.h, points.reshape(len(levels), -1, d), index, np.tile(weights.ravel(), (n, 1)))


DataSetLoss = FamilyLoss | NoisyFamilyLoss


class LossRecipe(eqx.Module):
    """The choices that define the loss of observed data: weight, location and scatter, coordinates.

    With `whiten`, the loss is computed in coordinates whitened by the location and scatter of the data, so that the
    learning rate means the same for every problem and every choice of units; without it, in the units of the
    network's standardiser, as in the paper. With noise levels, each column is scaled separately.
    """

    family: ExponentialFamily | NoisyFamily
    weight: Weight
    estimator: str = eqx.field(static=True)
    whiten: bool = eqx.field(static=True)
    noise_levels: tuple[float, ...] = eqx.field(static=True, default=(0.0,))
    grid_steps: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def dequantise(self, x: Float[np.ndarray, "n d_x"], piece: int = 0) -> Float[np.ndarray, "n d_x"]:
        """Observations with the same noise as simulations in columns with grid steps."""
        return dequantised(x, self.grid_steps, piece, 1)

    @double_precision
    def centre(self, x: Float[np.ndarray, "n d_x"]) -> LocationScatter:
        """The location and scatter of `x`."""
        return fit_location_scatter(x, estimator=self.estimator)

    def around(self, centre: LocationScatter) -> DataSetLoss:
        """The loss for a given location and scatter; with noise levels, a stack of them is possible."""
        if isinstance(self.family, ExponentialFamily):
            basis = centre.factor if self.whiten else jnp.diag(self.family.scale_x.scale)
            return FamilyLoss(self.family, self.weight, centre, basis)
        h = np.asarray(self.noise_levels)
        location, scatter = np.asarray(centre.location), np.asarray(centre.scatter)
        variance = np.eye(scatter.shape[-1]) * scatter
        smoothed = scatter[..., None, :, :] + h[:, None, None] ** 2 * variance[..., None, :, :]
        places = np.broadcast_to(location[..., None, :], smoothed.shape[:-1])
        scale = np.sqrt(np.diagonal(scatter, axis1=-2, axis2=-1))
        return NoisyFamilyLoss(
            family=self.family,
            weight=self.weight,
            centre=centre,
            basis=np.sqrt(variance),
            smoothed=LocationScatter.from_scatter(places, smoothed, centre.estimator),
            noise=h[:, None] * (scale / np.asarray(self.family.scale_x.scale))[..., None, :],
            noise_levels=self.noise_levels,
        )


class DataStatistics(NamedTuple):
    """A data set and its sufficient statistics for an exponential family: its loss is a quadratic in theta."""

    recipe: LossRecipe
    loss: DataSetLoss
    """The loss of one observation, for the location and scatter of the first data."""
    data: tuple[Float[np.ndarray, "_ d_x"], ...]
    """The observations, in the pieces in which they were added."""
    multiples: tuple[Float[np.ndarray, " _"], ...]
    """A factor for the loss of each observation, in addition to its weight by distance."""
    total: Quadratic
    """The sum of the losses of all observations."""

    @classmethod
    @double_precision
    def of(
        cls,
        recipe: LossRecipe,
        x: Float[np.ndarray, "n d_x"],
        centre: LocationScatter | None = None,
        multiples: Float[np.ndarray, " n"] | None = None,
    ) -> "DataStatistics":
        """The statistics of observations `x`, with their own location and scatter, or with `centre`."""
        noisy = recipe.dequantise(x)
        loss = recipe.around(recipe.centre(noisy) if centre is None else centre)
        multiples = np.ones(len(x)) if multiples is None else multiples
        return cls(recipe, loss, (x,), (multiples,), total_loss(loss, noisy, multiples))

    @property
    def n(self) -> int:
        """Number of observations."""
        return sum(map(len, self.data))

    @property
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations."""
        return np.concatenate(self.data)

    @property
    def dequantised(self) -> Float[np.ndarray, "n d_x"]:
        """The observations with dequantisation noise, as used by the loss."""
        return np.concatenate([self.recipe.dequantise(x, piece) for piece, x in enumerate(self.data)])

    @property
    def weighting(self) -> Weighting:
        """How the observations are weighted."""
        return Weighting(self.loss.weight, self.loss.centre)

    @property
    def average(self) -> Quadratic:
        """L_NSM as a quadratic in theta: theta' A theta + 2 theta' B + C."""
        return Quadratic(*(a / self.n for a in self.total))

    def each(self) -> Iterator[Quadratic]:
        """The losses of the observations, block after block."""
        for piece, (x, multiples) in enumerate(zip(self.data, self.multiples, strict=True)):
            yield from each_loss(self.loss, self.recipe.dequantise(x, piece), multiples)

    def extended(self, x_new: Float[np.ndarray, "k d_x"]) -> "DataStatistics":
        """A copy with more observations, weighted by the location and scatter of the first ones."""
        more = total_loss(self.loss, self.recipe.dequantise(x_new, len(self.data)))
        return self._replace(
            data=(*self.data, x_new),
            multiples=(*self.multiples, np.ones(len(x_new))),
            total=Quadratic(*(a + b for a, b in zip(self.total, more, strict=True))),
        )


@double_precision
def total_loss(
    loss: DataSetLoss, x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"] | None = None
) -> Quadratic:
    """The sum of the losses of all rows of `x`, each multiplied by `multiples` if given."""
    blocks = loss.blocks(x, np.ones(len(x)) if multiples is None else multiples)
    sums = [sum_at(loss, *jax.tree.map(jnp.asarray, (block.points, block.point_weights))) for block in blocks]
    total = Quadratic(*(np.sum(parts, axis=0) for parts in zip(*sums, strict=True)))
    if not all(np.isfinite(a).all() for a in total):
        raise ConvergenceError(
            "The loss of the observations is NaN or infinite: there is no posterior. Numbers of the network are too "
            "large, or its scales too small: look at the simulations that it was trained on, and train it again."
        )
    return total


def each_loss(
    loss: DataSetLoss, x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"] | None = None
) -> Iterator[Quadratic]:
    """The losses of the rows of `x`, block after block, each multiplied by `multiples` if given."""
    for block in loss.blocks(x, np.ones(len(x)) if multiples is None else multiples):
        with jax.enable_x64(True):  # not the decorator: a generator's body runs after its call has returned
            at_points = _at_each(loss, jax.tree.map(jnp.asarray, block.points))
        losses = (np.asarray(a) for a in at_points)
        if block.rows is None:
            yield Quadratic(*(_scaled(a[: block.n], block.point_weights[: block.n]) for a in losses))
        else:
            yield Quadratic(*(_gather(block.rows, block.n, a) for a in losses))


def _scaled(values: Float[np.ndarray, "n *shape"], by: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n *shape"]:
    return by.reshape(-1, *[1] * (values.ndim - 1)) * values


def _gather(rows: NoisyPoints, count: int, values: Float[np.ndarray, "points *shape"]) -> Float[np.ndarray, "n *shape"]:
    """Sums over the points of each observation."""
    total = np.zeros((count, *values.shape[1:]))
    for node, weight in zip(rows.node_index[:count].T, rows.quadrature_weight[:count].T, strict=True):
        total += _scaled(values[node], weight)
    return total


def _padded(
    x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"], most: int
) -> Iterator[tuple[Float[np.ndarray, "size d_x"], Float[np.ndarray, " size"], int]]:
    """Blocks of at most `most` rows, with their multiples and the number of rows.

    Blocks are padded to a power of two with copies of the first row, which have a multiple of zero.
    """
    for start in range(0, len(x), most):
        block, counts = x[start : start + most], multiples[start : start + most]
        missing = (1 << (len(block) - 1).bit_length()) - len(block)
        padded = np.concatenate([block, np.repeat(block[:1], missing, axis=0)])
        yield padded, np.concatenate([counts, np.zeros(missing)]), len(block)


@eqx.filter_jit
def _at_each(loss: DataSetLoss, points: Any) -> Quadratic:
    return jax.lax.map(loss, points, batch_size=min(_CHUNK, len(jax.tree.leaves(points)[0])))


@eqx.filter_jit
def sum_at(loss: DataSetLoss, points: Any, weights: Float[Array, " size"]) -> Quadratic:
    """The weighted sum of the losses at points."""
    chunk = min(_CHUNK, len(weights))
    missing = -len(weights) % chunk
    points = jax.tree.map(lambda a: jnp.concatenate([a, a[:missing]]), points)
    weights = jnp.pad(weights, (0, missing))

    def add(total: Quadratic, part) -> tuple[Quadratic, None]:
        some, keep = part
        losses = jax.vmap(loss)(some)
        # a padded row is a copy of a real one, so zero is multiplied by a finite number and nothing becomes NaN
        return Quadratic(*(t + jnp.tensordot(keep, a, 1) for t, a in zip(total, losses, strict=True))), None

    parts = jax.tree.map(lambda a: a.reshape(-1, chunk, *a.shape[1:]), (points, weights))
    one = jax.tree.map(lambda a: a[0], points)
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(loss, one))
    return jax.lax.scan(add, zero, parts)[0]
