"""Losses of a data set under any surrogate: one number an observation, as a function of theta."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._precision import double_precision
from nsmbayes.levels import noise_rule
from nsmbayes.losses import nsm
from nsmbayes.surrogates import Density, Frame, Surrogate
from nsmbayes.weights import LocationScatter, Weight, evaluate_many

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
    """sum over levels l and nodes e of coefficient_l weight_e L_NSM^{h_l}(theta; y_i + h_l e), y in `frame`."""

    surrogate: Surrogate
    frame: Frame
    h: Float[Array, " levels"]
    y: Float[Array, "levels n nodes d_x"]
    w2: Float[Array, "levels n nodes"]
    grad_w2: Float[Array, "levels n nodes d_x"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation; w2 and grad_w2, in which it is linear, carry the coefficients."""

        n, nodes, d = self.y.shape[1:]

        def level(h, y, w2, grad_w2):
            derivatives = self.surrogate.at(theta, self.frame, h)

            def losses(points):
                y, w2, grad_w2 = points
                return jax.vmap(nsm)(derivatives(y), w2, grad_w2)

            rows = (y.reshape(n * nodes, d), w2.reshape(n * nodes), grad_w2.reshape(n * nodes, d))
            return _in_chunks(losses, rows).reshape(n, nodes).sum(axis=1)

        return jax.vmap(level)(self.h, self.y, self.w2, self.grad_w2).sum(axis=0)


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
) -> NSMLoss:
    """The loss on observations `x`; at level h the weight is measured against the scatter plus h^2 L L'."""
    rule = noise_rule(levels, x.shape[1])
    offset, basis = np.asarray(frame.offset), np.asarray(frame.basis)
    y = np.linalg.solve(basis, (x - offset).T).T
    noisy = y[None, :, None, :] + rule.h[:, None, None, None] * rule.nodes
    w2, grad_w2 = [], []
    for h, points, coefficient in zip(rule.h, noisy, rule.coefficients, strict=True):
        scatter = np.asarray(centre.scatter) + h**2 * basis @ basis.T
        smoothed = LocationScatter.from_scatter(np.asarray(centre.location), scatter, centre.estimator)
        value, gradient = evaluate_many(
            weight, smoothed, jnp.asarray(offset + points.reshape(-1, len(offset)) @ basis.T)
        )
        scale = coefficient * rule.node_weights
        w2.append(scale * np.asarray(value).reshape(points.shape[:2]))
        grad_w2.append(scale[:, None] * np.asarray(gradient @ basis).reshape(points.shape))
    return NSMLoss(surrogate, frame, *map(jnp.asarray, (rule.h, noisy, np.stack(w2), np.stack(grad_w2))))
