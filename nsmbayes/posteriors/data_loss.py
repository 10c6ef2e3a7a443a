"""Losses of a data set under any surrogate: one number an observation, as a function of theta."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._precision import double_precision
from nsmbayes.levels import noisy_points
from nsmbayes.losses import nsm
from nsmbayes.surrogates import Density, Frame, Surrogate
from nsmbayes.weights import LocationScatter, Weight, evaluate_many, whole_many

_CHUNK = 8192  # points whose derivatives are in memory at once, per theta


class DataLoss(eqx.Module):
    """A loss with its data: `each(theta)` is the loss of every observation."""

    @abstractmethod
    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """Sum over the observations."""
        return self.each(theta).sum()


class NLELoss(DataLoss):
    """-log q(x_i | theta): its generalised posterior at beta = 1 is that of neural likelihood estimation."""

    surrogate: Density
    x: Float[Array, "n d_x"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""
        return _in_chunks(lambda x: -self.surrogate.log_probs(theta, x), self.x)


class NSMLoss(DataLoss):
    """The weighted score-matching loss at noisy points, y in `frame`, and the shares of the observations in it.

    `whole` is what an observation counts as a whole, at most 1; `total_shares` have it in them, `share` has not.
    """

    surrogate: Surrogate
    frame: Frame
    h: Float[Array, "groups points_or_1"]
    y: Float[Array, "groups points d_x"]
    w2: Float[Array, "groups points"]
    grad_w2: Float[Array, "groups points d_x"]
    total_shares: Float[Array, "groups points"]
    point: Int[Array, "n terms"]
    share: Float[Array, "n terms"]
    whole: Float[Array, " n"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""
        return self.whole * (self.share * self._at_points(theta).ravel()[self.point]).sum(axis=1)

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """Sum over the observations."""
        return (self.total_shares * self._at_points(theta)).sum()

    def _at_points(self, theta: Float[Array, " d_theta"]) -> Float[Array, "groups points"]:
        shared_h = self.h.shape[1] == 1

        def group(h, *points):
            def losses(rows):
                level, y, w2, grad_w2 = (h[0], *rows) if shared_h else rows
                return jax.vmap(nsm)(self.surrogate.at(theta, self.frame, level)(y), w2, grad_w2)

            return _in_chunks(losses, points if shared_h else (h, *points))

        groups = (self.h, self.y, self.w2, self.grad_w2)
        return jax.lax.map(lambda one: group(*one), groups)  # one level at a time: its arrays fit into a core's cache


def _in_chunks(function, rows):
    """`function` of many rows; of very many, in chunks whose intermediate values are computed again for gradients."""
    total = len(jax.tree.leaves(rows)[0])
    if total <= _CHUNK:
        return function(rows)
    chunks = -(-total // _CHUNK)
    padded = jax.tree.map(
        lambda a: jnp.concatenate([a, jnp.broadcast_to(a[:1], (chunks * _CHUNK - total, *a.shape[1:]))]), rows
    )
    parts = jax.tree.map(lambda a: a.reshape(chunks, _CHUNK, *a.shape[1:]), padded)
    return jax.lax.map(jax.checkpoint(function), parts).reshape(-1)[:total]  # pyright: ignore[reportPrivateImportUsage]


@double_precision
def nsm_loss(
    surrogate: Surrogate,
    weight: Weight,
    centre: LocationScatter,
    frame: Frame,
    x: Float[np.ndarray, "n d_x"],
    levels: tuple[float, ...],
    *,
    rules: int = 1,
    seed: int = 0,
) -> NSMLoss:
    """The loss on observations `x`; at level h the weight is measured against the scatter plus h^2 L L'.

    Where there is noise an observation also counts by its distance before noise is added, see `Weight.whole`.

    `rules` and `seed` are those of `noisy_points`.
    """
    offset, basis = np.asarray(frame.offset), np.asarray(frame.basis)
    points = noisy_points(levels, np.linalg.solve(basis, (x - offset).T).T, rules=rules, seed=seed)
    at = offset + points.y @ basis.T
    w2, grad_w2 = np.empty(at.shape[:2]), np.empty(at.shape)
    for group, h in enumerate(points.h):
        for level in np.unique(h):
            scatter = np.asarray(centre.scatter) + level**2 * basis @ basis.T
            smoothed = LocationScatter.from_scatter(np.asarray(centre.location), scatter, centre.estimator)
            # all points of the group, though only those of the level count: one shape, hence one compilation
            value, gradient = evaluate_many(weight, smoothed, jnp.asarray(at[group]))
            mine = np.broadcast_to(h == level, len(at[group]))
            w2[group, mine], grad_w2[group, mine] = np.asarray(value)[mine], np.asarray(gradient @ basis)[mine]
    whole = np.asarray(whole_many(weight, centre, jnp.asarray(x))) if levels[0] > 0 else np.ones(len(x))
    totals = points._replace(share=whole[:, None] * points.share).total_shares()
    arrays = (points.h, points.y, w2, grad_w2, totals, points.point, points.share, whole)
    return NSMLoss(surrogate, frame, *map(jnp.asarray, arrays))
