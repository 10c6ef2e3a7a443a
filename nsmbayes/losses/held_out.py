"""Gradients of the loss at held-out simulations: if the surrogate is right, they average to zero.

If q(. | theta) is the distribution of the simulator, theta minimises the expected loss of its simulations for any
weight: the gradient at theta of the loss of x ~ simulator(theta) has mean zero. So held-out simulations show the error
of a surrogate, in the units of the parameters, without further calls of the simulator.

Each simulation has its own parameters, and hence its own coordinates: the location and scatter of the surrogate there.
Alternatively all simulations use those of a data set (`centre`): then the gradients are those of the loss of this data
set, and can be used to correct it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import chi2

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.noise_levels import level_coefficients, noisy_points
from nsmbayes.losses.pointwise import nsm
from nsmbayes.losses.statistics import FamilyLoss
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import Frame, MixtureDensity, NoisyFamily, Surrogate
from nsmbayes.weights import Weight

_DRAWS = 200  # draws of the surrogate for location and scatter
_STEPS, _INNER = 3, 0.75  # concentration steps, and the fraction of draws they keep
_NODES = 9  # quadrature nodes for the noise of one column
_FARTHEST = 1e3  # in units of the scatter; farther out, weights are negligible


class HeldOut(NamedTuple):
    """Simulations that a network was not trained on."""

    theta: Float[np.ndarray, "m d_theta"]
    x: Float[np.ndarray, "m d_x"]


@double_precision
def density_gradients(
    density: MixtureDensity,
    weight: Weight,
    noise_levels: tuple[float, ...],
    held_out: HeldOut,
    seed: int = 0,
    nodes: int = _NODES,
    centre: LocationScatter | None = None,
) -> Float[np.ndarray, "m d_theta"]:
    """The gradient of the NSM-Bayes loss of a mixture, for each simulation at its own theta.

    `nodes` is the number of quadrature nodes for the noise of one column: few are enough for a mean over many
    simulations.
    """
    rows = _Rows.of(density, noise_levels, held_out, seed, nodes, centre)
    return map_rows(_density_gradient, rows.packed(), rows.layout, density, weight)


@double_precision
def family_gradients(
    family: NoisyFamily,
    density: MixtureDensity,
    weight: Weight,
    noise_levels: tuple[float, ...],
    held_out: HeldOut,
    seed: int = 0,
    nodes: int = _NODES,
) -> Float[np.ndarray, "m d_theta"]:
    """The gradient of the loss of an exponential family, for each simulation at its own theta.

    `density` is only used for location and scatter.
    """
    rows = _Rows.of(density, noise_levels, held_out, seed, nodes, diagonal=True)
    variance = np.eye(held_out.x.shape[1]) * rows.scatter
    h = np.asarray(noise_levels)
    smoothed = rows.scatter[:, None] + h[:, None, None] ** 2 * variance[:, None]
    centre = LocationScatter.from_scatter(np.repeat(rows.offset[:, None], len(h), 1), smoothed, "mcd")
    return map_rows(_family_gradient, rows.packed(np.asarray(centre.inverse)), rows.layout, family, weight)


class _Layout(eqx.Module):
    """The layout of the numbers of one row, and the values that all rows share."""

    levels: Float[Array | np.ndarray, " levels"]
    d_theta: int = eqx.field(static=True)
    d_x: int = eqx.field(static=True)
    nodes: int = eqx.field(static=True)

    def unpacked(self, row: Float[Array, " numbers"], *more: tuple[int, ...]) -> list[Array]:
        """theta, noisy points, their weights, distance, offset, basis, and arrays of the shapes in `more`."""
        d, levels = self.d_x, len(self.levels)
        shapes = ((self.d_theta,), (levels, self.nodes, d), (levels, self.nodes), (), (d,), (d, d), *more)
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(jnp.split(row, ends), shapes, strict=True)]


class _Rows(NamedTuple):
    """Simulations in their own coordinates y = L^-1 (x - location), and the noisy points around them."""

    layout: _Layout
    theta: Float[np.ndarray, "m d_theta"]
    points: Float[np.ndarray, "m levels nodes d_x"]
    counts: Float[np.ndarray, "m levels nodes"]
    distance: Float[np.ndarray, " m"]
    offset: Float[np.ndarray, "m d_x"]
    basis: Float[np.ndarray, "m d_x d_x"]
    scatter: Float[np.ndarray, "m d_x d_x"]

    @classmethod
    def of(
        cls,
        density: MixtureDensity,
        noise_levels: tuple[float, ...],
        held_out: HeldOut,
        seed: int,
        nodes: int,
        centre: LocationScatter | None = None,
        *,
        diagonal: bool = False,
    ) -> "_Rows":
        """Rows with location and scatter `centre` or those of the density; whitened, or scaled if `diagonal`."""
        theta, x = held_out
        h = np.asarray(noise_levels)
        if centre is None:
            location, scatter = frames_at(density, theta, np.random.default_rng([seed, len(theta)]))
        else:
            location, scatter = (
                np.repeat(np.asarray(part)[None], len(theta), 0) for part in (centre.location, centre.scatter)
            )
        root = np.linalg.cholesky(scatter)
        distance = np.sqrt((np.linalg.solve(root, (x - location)[..., None]) ** 2).sum(axis=(1, 2)))
        basis = np.sqrt(np.eye(x.shape[1]) * scatter) if diagonal else root
        y = np.linalg.solve(basis, (x - location)[..., None])[..., 0]
        y = y / np.maximum(1.0, distance / _FARTHEST)[:, None]
        noise, counts = _noise(h, len(x), x.shape[1], seed, nodes)
        layout = _Layout(h, theta.shape[1], x.shape[1], counts.shape[2])
        return cls(layout, theta, y[:, None, None] + noise, counts, distance, location, basis, scatter)

    def packed(self, *more: np.ndarray) -> Float[np.ndarray, "m numbers"]:
        """One row of numbers for each simulation."""
        parts = (self.theta, self.points, self.counts, self.distance, self.offset, self.basis, *more)
        return np.concatenate([part.reshape(len(self.theta), -1) for part in parts], axis=1)


def frames_at(
    density: MixtureDensity, theta: Float[np.ndarray, "m d_theta"], rng: np.random.Generator
) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "m d_x d_x"]]:
    """A robust location and scatter of the surrogate at each theta, from a few of its draws."""
    x = density.draw(theta, _DRAWS, rng)
    d = x.shape[2]
    location = np.median(x, axis=1)
    spread = 1.4826 * np.median(np.abs(x - location[:, None]), axis=1)
    scatter = np.eye(d) * spread[:, None] ** 2
    if d == 1:
        return location, scatter
    reach = chi2.ppf(_INNER, d)
    factor = _INNER / chi2.cdf(reach, d + 2)
    for _ in range(_STEPS):
        y = np.linalg.solve(np.linalg.cholesky(scatter), (x - location[:, None]).swapaxes(1, 2))
        squares = (y**2).sum(axis=1)
        limit = reach / chi2.ppf(0.5, d) * np.median(squares, axis=1, keepdims=True)
        inside = (squares <= limit) / (squares <= limit).sum(axis=1, keepdims=True)
        location = np.einsum("mn,mnd->md", inside, x)
        residuals = x - location[:, None]
        scatter = factor * np.einsum("mn,mni,mnj->mij", inside, residuals, residuals)
    return location, scatter


def _noise(
    h: Float[np.ndarray, " levels"], m: int, d: int, seed: int, nodes: int
) -> tuple[Float[np.ndarray, "m_or_1 levels nodes d"], Float[np.ndarray, "m levels nodes"]]:
    """Noise to be added at each level, and the weight of each value."""
    if d == 1 and h[0] > 0:
        z, weights = np.polynomial.hermite_e.hermegauss(nodes)
        counts = level_coefficients(h)[:, None] * weights / weights.sum()
        return (h[:, None] * z)[None, ..., None], np.tile(counts, (m, 1, 1))
    rule = noisy_points(h, np.zeros((m, d)), seed=seed)
    shape = (m, len(h), -1)
    return rule.y.reshape(-1, d)[rule.node_index].reshape(*shape, d), rule.quadrature_weight.reshape(shape)


def _density_gradient(row: Array, layout: _Layout, density: Surrogate, weight: Weight) -> Float[Array, " d_theta"]:
    theta, points, counts, distance, offset, basis = layout.unpacked(row)
    levels, frame = jnp.asarray(layout.levels), Frame(offset, basis)

    def squared(y: Float[Array, " d_x"], level: Float[Array, ""]) -> tuple[Array, Array]:
        """w^2 under the scatter of noisy observations, which is (1 + level^2) I here, and its gradient."""
        scale = jnp.sqrt(1 + level**2)
        r = jnp.sqrt((y**2).sum()) / scale
        value, slope = weight.squared(r)
        return value, slope * y / (scale**2 * jnp.where(r > 0, r, 1.0))

    w2, gradient = jax.vmap(jax.vmap(squared, (0, None)))(points, levels)

    def loss(theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        at = jax.vmap(lambda h, y: density.derivatives_at(theta, frame, h)(y))(levels, points)
        return (counts * jax.vmap(jax.vmap(nsm))(at, w2, gradient)).sum()

    return weight.overall(distance) * jax.grad(loss)(theta)


def _family_gradient(row: Array, layout: _Layout, family: NoisyFamily, weight: Weight) -> Float[Array, " d_theta"]:
    d, levels = layout.d_x, jnp.asarray(layout.levels)
    theta, points, counts, distance, offset, basis, inverse = layout.unpacked(row, (len(levels), d, d))
    noise = levels[:, None] * jnp.diagonal(basis) / family.scale_x.scale

    def at_level(noise: Array, inverse: Array, points: Array, counts: Array) -> Float[Array, " d_theta"]:
        centre = LocationScatter(offset, basis, basis, inverse, "mcd")  # distances need location and inverse only
        loss = FamilyLoss(family.with_noise(noise), weight, centre, basis)
        A, B, _ = jax.vmap(lambda y: loss(offset + basis @ y))(points)
        return jnp.tensordot(counts, 2 * (A @ theta + B), 1)

    return weight.overall(distance) * jax.vmap(at_level)(noise, inverse, points, counts).sum(axis=0)
