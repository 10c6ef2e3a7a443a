"""Mixtures of Student distributions as in `students`, for use inside compiled programs: the proposals of `compiled`."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nsmbayes._internal.linalg import inverse_factor, triangular_inverse

_FREEDOM = 8  # degrees of freedom; an even number, so that sampling needs no rejection
_BROAD = 0.1  # share of one component as wide as all draws together
_EM_STEPS = 8


class TracedStudents(NamedTuple):
    """sum_k exp(log_weight_k) t(mean_k, (W_k' W_k)^-1), with lower triangular W_k."""

    log_weights: Float[Array, "*stages k"]
    means: Float[Array, "*stages k d"]
    inverses: Float[Array, "*stages k d d"]
    log_dets: Float[Array, "*stages k"]
    """log det of W^-1."""

    def log_prob(self, u: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Log density, normalised."""
        d = u.shape[1]
        constant = math.lgamma((_FREEDOM + d) / 2) - math.lgamma(_FREEDOM / 2) - 0.5 * d * math.log(_FREEDOM * math.pi)
        squares = _squares(u, self.means, self.inverses)
        tails = 0.5 * (_FREEDOM + d) * jnp.log1p(squares / _FREEDOM)
        return constant + jax.nn.logsumexp((self.log_weights - self.log_dets)[:, None] - tails, axis=0)

    def sample(self, key: Key[Array, ""], size: int) -> Float[Array, "size d"]:
        """Independent draws."""
        of_k, of_z, of_u = jax.random.split(key, 3)
        k = jax.random.categorical(of_k, self.log_weights, shape=(size,))
        z = jax.random.normal(of_z, (size, self.means.shape[-1]))
        u = jax.random.uniform(of_u, (size, _FREEDOM // 2), minval=1e-300)
        chi_squared = -2 * jnp.log(u).sum(axis=1, keepdims=True)
        factors = triangular_inverse(self.inverses)
        return self.means[k] + jnp.einsum("nij,nj->ni", factors[k], z / jnp.sqrt(chi_squared / _FREEDOM))


def traced_students(shares: Array, means: Array, covariances: Array) -> TracedStudents:
    """The mixture with these shares, means and covariances."""
    inverses, log_dets = inverse_factor(covariances)
    return TracedStudents(jnp.log(shares), means, inverses, 0.5 * log_dets)


def _squares(u: Float[Array, "n d"], means: Float[Array, "k d"], inverses: Float[Array, "k d d"]) -> Array:
    z = jnp.einsum("kij,nj->kin", inverses, u) - jnp.einsum("kij,kj->ki", inverses, means)[:, :, None]
    return (z**2).sum(axis=1)


def fit_traced(
    u: Float[Array, "n d"], weights: Float[Array, " n"], components: int, key: Key[Array, ""]
) -> TracedStudents:
    """`students.fit_students` in JAX: expectation maximisation with a prior so that no covariance collapses."""
    d = u.shape[1]
    centre = weights @ u
    offsets = u - centre
    whole = (weights[:, None] * offsets).T @ offsets
    whole += (1e-10 * jnp.trace(whole) / d + 1e-300) * jnp.eye(d)
    count = 1 / (weights**2).sum()
    typical, belief = whole / components ** (2 / d), (d + 2) / count
    means = u[jax.random.categorical(key, jnp.log(weights), shape=(components,))]

    def step(_, carry):
        shares, means, covariances = carry
        inverses, log_dets = inverse_factor(covariances)
        logs = (jnp.log(shares) - 0.5 * log_dets)[:, None] - 0.5 * _squares(u, means, inverses)
        r = jax.nn.softmax(logs, axis=0) * weights
        mass = r.sum(axis=1)
        shares = (mass + 1 / count) / (mass + 1 / count).sum()
        means = (r @ u + belief * means) / (mass + belief)[:, None]
        second = (r @ (u[:, :, None] * u[:, None, :]).reshape(-1, d * d)).reshape(-1, d, d)
        first = (r @ u)[:, :, None] * means[:, None, :]
        outer = means[:, :, None] * means[:, None, :]
        moments = second - first - jnp.swapaxes(first, 1, 2) + mass[:, None, None] * outer
        return shares, means, (moments + belief * typical) / (mass + belief)[:, None, None]

    start = jnp.full(components, 1 / components), means, jnp.broadcast_to(typical, (components, d, d))
    shares, means, covariances = jax.lax.fori_loop(0, _EM_STEPS, step, start)
    return traced_students(
        jnp.append((1 - _BROAD) * shares, _BROAD),
        jnp.concatenate([means, centre[None]]),
        jnp.concatenate([covariances, 2 * whole[None]]),
    )
