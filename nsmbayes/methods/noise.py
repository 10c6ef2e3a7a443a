"""Noise that is added to simulations in training, for surrogates that are told how noisy x is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._linalg import cholesky
from nsmbayes.training import Augment

_SCALES = (0.03, 1.0)  # of the observations to come, in units of the simulations: what the network is trained for
_NOISE_FREE = 1 / 8  # of the simulations, if noise has any shape


@functools.cache  # a new function would have to be compiled again
def independent_noise(low: float, high: float) -> Augment:
    """To z: z + h e beside h, with h a level between `low` and `high` times a scale for each column."""

    def add(key: PRNGKeyArray, z: Float[Array, "size d_x"]) -> Float[Array, "size 2*d_x"]:
        key_scale, key_level, key_noise = jax.random.split(key, 3)
        h = _sizes(key_scale, key_level, z.shape, low, high)
        return jnp.concatenate([z + h * jax.random.normal(key_noise, z.shape), h], axis=1)

    return add


@functools.cache
def correlated_noise(low: float, high: float) -> Augment:
    """To z: z + C e beside C, flat, with C C' the same times a random correlation matrix; some z get none.

    That of d_x normal vectors with d_x + 1 entries: it is uniformly distributed over all correlation matrices.
    """

    def add(key: PRNGKeyArray, z: Float[Array, "size d_x"]) -> Float[Array, "size d_x+d_x*d_x"]:
        key_scale, key_level, key_shape, key_none, key_noise = jax.random.split(key, 5)
        m, d = z.shape
        h = _sizes(key_scale, key_level, z.shape, low, high)
        vectors = jax.random.normal(key_shape, (m, d, d + 1))
        vectors = vectors / jnp.linalg.norm(vectors, axis=2, keepdims=True)
        noisy = jax.random.uniform(key_none, (m, 1, 1)) >= _NOISE_FREE
        C = noisy * h[:, :, None] * cholesky(vectors @ vectors.transpose(0, 2, 1))
        noise = (C @ jax.random.normal(key_noise, (m, d, 1)))[..., 0]
        return jnp.concatenate([z + noise, C.reshape(m, -1)], axis=1)

    return add


def _sizes(
    key_scale: PRNGKeyArray, key_level: PRNGKeyArray, shape: tuple[int, ...], low: float, high: float
) -> Float[Array, "size d_x"]:
    """Standard deviations: a level for each simulation times a scale for each of its columns."""
    return _log_uniform(key_scale, shape, *_SCALES) * _log_uniform(key_level, (shape[0], 1), low, high)


def _log_uniform(key: PRNGKeyArray, shape: tuple[int, ...], low: float, high: float) -> Float[Array, "..."]:
    return jnp.exp(jax.random.uniform(key, shape, minval=np.log(low), maxval=np.log(high)))
