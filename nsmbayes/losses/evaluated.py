"""Losses of a data set under any surrogate, by evaluation: one number per observation, as a function of theta."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.noise_levels import noisy_points
from nsmbayes.losses.pointwise import nsm_of_many
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import FEW_COLUMNS, Density, Derivatives, Frame, MixtureDensity, Surrogate
from nsmbayes.weights import Constant, Weighting, evaluate_each, overall_many

_CHUNK = 8192  # points times columns whose derivatives are in memory at once, per theta
_TOGETHER = 4096  # levels with no more points than this are computed together: calls cost more than arithmetic


class Loss(eqx.Module):
    """A loss with its data: `each(theta)` is the loss of every observation."""

    @property
    def cheap(self) -> bool:
        """Whether its sum costs the same for any number of observations: samplers then evaluate it more often."""
        return False

    @abstractmethod
    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """Sum over the observations."""
        return self.each(theta).sum()


class LossSetting(Protocol):
    """Everything a loss depends on except the observations, so that it can be computed for other observations."""

    @property
    def surrogate(self) -> Surrogate:
        """The surrogate of the loss."""
        ...

    @property
    def weighting(self) -> Weighting:
        """How observations are weighted."""
        ...

    def loss(self, x: Float[np.ndarray, "n d_x"], *, rules: int = 1, seed: int = 0) -> Loss:
        """The loss on observations `x`; `rules` and `seed` are those of `noisy_points`, used if there is noise."""
        ...


class NLELoss(Loss):
    """-log q(x_i | theta): its generalised posterior at beta = 1 is that of neural likelihood estimation."""

    surrogate: Density
    x: Float[Array, "n d_x"]
    counts: Float[Array, " n"] | None = None
    """A factor for the loss of each observation; 1 by default."""

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""
        losses = _in_chunks(lambda x: -self.surrogate.log_probs(theta, x), self.x)
        return losses if self.counts is None else jnp.where(self.counts > 0, self.counts * losses, 0.0)


class NLESetting(NamedTuple):
    """The loss of NLE: all observations have the same weight."""

    surrogate: Density
    weighting: Weighting

    @classmethod
    def of(cls, surrogate: Density, d_x: int) -> "NLESetting":
        """The setting with the constant weight, which does not depend on location and scatter."""
        centre = LocationScatter.from_scatter(np.zeros(d_x), np.eye(d_x), "sample")
        return cls(surrogate, Weighting(Constant(), centre))

    @double_precision
    def loss(self, x: Float[np.ndarray, "n d_x"], *, rules: int = 1, seed: int = 0) -> NLELoss:
        """The loss on observations `x`."""
        del rules, seed
        return NLELoss(self.surrogate, jnp.asarray(x))


class NSMLoss(Loss):
    """The weighted score-matching loss at noisy points y in `frame`, and the points' weights for the observations.

    `overall` is a factor, at most 1, of each observation at all noise levels. It is included in `total_weights`, but
    not in `quadrature_weight`.
    """

    surrogate: Surrogate
    frame: Frame
    h: Float[Array, "groups 1"]
    y: Float[Array, "groups points d_x"]
    w2: Float[Array, "groups points"]
    grad_w2: Float[Array, "groups points d_x"]
    total_weights: Float[Array, "groups points"]
    node_index: Int[Array, "n terms"]
    quadrature_weight: Float[Array, "n terms"]
    overall: Float[Array, " n"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""
        return self.by_observation(self._at_points(theta))

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """Sum over the observations."""
        return (self.total_weights * self._at_points(theta)).sum()

    def by_observation(self, at_points: Float[Array, "groups points"]) -> Float[Array, " n"]:
        """The loss of each observation, summed from the losses at the points."""
        return self.overall * (self.quadrature_weight * at_points.ravel()[self.node_index]).sum(axis=1)

    @double_precision
    def reweighted(self, multiples: Float[np.ndarray, " n"]) -> "NSMLoss":
        """The loss with the loss of each observation multiplied by `multiples`."""
        overall = np.asarray(self.overall) * multiples
        weights = overall[:, None] * np.asarray(self.quadrature_weight)
        index, shape = np.asarray(self.node_index), self.total_weights.shape
        totals = np.bincount(index.ravel(), weights.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
        return dataclasses.replace(self, overall=jnp.asarray(overall), total_weights=jnp.asarray(totals))

    @double_precision
    def only(self, rows: Int[np.ndarray, " k"]) -> "NSMLoss":
        """The loss of some observations, with the same nodes as here; only for several columns.

        With several columns, every observation has its own nodes, the same number at each level.
        """
        groups, nodes = self.y.shape[0], self.node_index.shape[1] // self.y.shape[0]
        old = np.asarray(self.node_index)[rows].reshape(len(rows), groups, nodes)
        new = np.arange(old.size).reshape(groups, len(rows), nodes).transpose(1, 0, 2).reshape(len(rows), -1)
        index = old.transpose(1, 0, 2).reshape(groups, -1) % self.y.shape[1]
        level = np.arange(groups)[:, None]
        picked = {name: getattr(self, name)[level, index] for name in ("y", "w2", "grad_w2", "total_weights")}
        return dataclasses.replace(
            self,
            **picked,
            node_index=jnp.asarray(new),
            quadrature_weight=self.quadrature_weight[rows],
            overall=self.overall[rows],
        )

    def _at_points(self, theta: Float[Array, " d_theta"]) -> Float[Array, "groups points"]:
        if self.y.shape[2] == 1 and self.w2.size <= _CHUNK and isinstance(self.surrogate, MixtureDensity):
            mixture = self.surrogate.in_frame(theta, self.frame)
            score, laplacian = mixture.line_derivatives(self.h[:, 0], self.y[..., 0])
            return self.w2 * (score**2 + 2 * laplacian) + 2 * self.grad_w2[..., 0] * score

        def group(h, *points):
            derivatives = self._derivatives_at(theta, h[0])
            return _in_chunks(lambda rows: nsm_of_many(derivatives(rows[0]), *rows[1:]), points)

        groups = (self.h, self.y, self.w2, self.grad_w2)
        if self.w2.size <= _TOGETHER:
            return jax.vmap(group)(*groups)
        return jax.lax.map(lambda one: group(*one), groups)  # one level at a time: its arrays fit into a core's cache

    def _derivatives_at(
        self, theta: Float[Array, " d_theta"], h: Float[Array, ""]
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        if isinstance(self.surrogate, MixtureDensity) and self.y.shape[2] <= FEW_COLUMNS:
            return self.surrogate.in_frame(theta, self.frame).smooth(h).polynomials().derivatives
        return self.surrogate.derivatives_at(theta, self.frame, h)


class NSMSetting(NamedTuple):
    """The loss of NSM-Bayes: its surrogate, the weighting of observations, the coordinates and the noise levels."""

    surrogate: Surrogate
    weighting: Weighting
    frame: Frame
    noise_levels: tuple[float, ...]

    @classmethod
    @double_precision
    def of(
        cls, surrogate: Surrogate, weighting: Weighting, noise_levels: tuple[float, ...], *, whiten: bool
    ) -> "NSMSetting":
        """The setting in coordinates whitened by location and scatter of the weighting, or in the user's units."""
        centre, d_x = weighting.centre, weighting.centre.dim
        frame = Frame(jnp.zeros(d_x), jnp.eye(d_x))
        if whiten:
            frame = Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
        return cls(surrogate, weighting, frame, noise_levels)

    def coordinates(self, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, "n d_x"]:
        """The coordinates y of observations x = offset + L y."""
        return np.linalg.solve(np.asarray(self.frame.basis), (x - np.asarray(self.frame.offset)).T).T

    @double_precision
    def weigh(
        self, y: Float[np.ndarray, "n d_x"], level: float
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d_x"]]:
        """w^2 at points y, and its gradient in y, with distances under the scatter plus level^2 L L'."""
        value, gradient = self.weigh_each(y[None], np.array([level]))
        return value[0], gradient[0]

    @double_precision
    def weigh_each(
        self, y: Float[np.ndarray, "levels n d_x"], h: Float[np.ndarray, " levels"]
    ) -> tuple[Float[np.ndarray, "levels n"], Float[np.ndarray, "levels n d_x"]]:
        """`weigh` for several levels, each with its own points, in one compiled call."""
        weight, centre = self.weighting
        offset, basis = np.asarray(self.frame.offset), np.asarray(self.frame.basis)
        scatters = np.asarray(centre.scatter) + h[:, None, None] ** 2 * (basis @ basis.T)
        locations = np.repeat(np.asarray(centre.location)[None], len(h), axis=0)
        smoothed = LocationScatter.from_scatter(locations, scatters, centre.estimator)
        value, gradient = evaluate_each(weight, smoothed, jnp.asarray(offset + y @ basis.T))
        return np.asarray(value), np.asarray(gradient) @ basis

    @double_precision
    def loss(self, x: Float[np.ndarray, "n d_x"], *, rules: int = 1, seed: int = 0) -> NSMLoss:
        """The loss on observations `x`; at level h, the weight uses distances under the scatter plus h^2 L L'.

        If there is noise, the loss of an observation is also multiplied by `Weight.overall` of its distance before
        noise.
        """
        weight, centre = self.weighting
        points = noisy_points(self.noise_levels, self.coordinates(x), rules=rules, seed=seed)
        w2, grad_w2 = self.weigh_each(points.y, points.h[:, 0])
        overall = np.ones(len(x))
        if self.noise_levels[0] > 0:
            overall = np.asarray(overall_many(weight, centre, jnp.asarray(x)))
        totals = points._replace(quadrature_weight=overall[:, None] * points.quadrature_weight).total_weights()
        arrays = (points.h, points.y, w2, grad_w2, totals, points.node_index, points.quadrature_weight, overall)
        return NSMLoss(self.surrogate, self.frame, *map(jnp.asarray, arrays))


def _in_chunks(function: Any, rows: Any) -> Any:
    """`function` of many rows; very many are split into chunks, with intermediate values recomputed for gradients."""
    arrays = jax.tree.leaves(rows)
    total = len(arrays[0])
    size = _CHUNK // max(a.shape[1] for a in arrays if a.ndim == 2)
    if total <= size:
        return function(rows)
    chunks = -(-total // size)
    padded = jax.tree.map(
        lambda a: jnp.concatenate([a, jnp.broadcast_to(a[:1], (chunks * size - total, *a.shape[1:]))]), rows
    )
    parts = jax.tree.map(lambda a: a.reshape(chunks, size, *a.shape[1:]), padded)
    return jax.lax.map(jax.checkpoint(function), parts).reshape(-1)[:total]  # pyright: ignore[reportPrivateImportUsage]
