"""Noise added to simulations during training, for surrogates that take the noise as an input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._internal.linalg import cholesky
from nsmbayes.training.loop import Augment

_SCALES = (0.03, 1.0)  # range of scales of future observations covered by training, in units of the simulations
_NOISE_FREE = 1 / 8  # fraction of the simulations without noise, for correlated noise


@functools.cache  # a new function object would be compiled again each time
def independent_noise(low: float, high: float) -> Augment:
    """Replace z by (z + h e, h), with e standard normal and h a level between `low` and `high` times column scales."""

    def add(key: PRNGKeyArray, z: Float[Array, "size d_x"]) -> Float[Array, "size 2*d_x"]:
        key_scale, key_level, key_noise = jax.random.split(key, 3)
        h = _sizes(key_scale, key_level, z.shape, low, high)
        return jnp.concatenate([z + h * jax.random.normal(key_noise, z.shape), h], axis=1)

    return add


@functools.cache
def correlated_noise(low: float, high: float) -> Augment:
    """Replace z by (z + C e, C flattened), with e standard normal; an eighth of the rows get no noise, C = 0.

    C C' has the standard deviations of `independent_noise` and a random correlation matrix: that of d_x normal vectors
    with d_x + 1 entries, which is uniformly distributed over all correlation matrices.
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
    """Noise standard deviations: a level per simulation times a scale per column."""
    return _log_uniform(key_scale, shape, *_SCALES) * _log_uniform(key_level, (shape[0], 1), low, high)


def _log_uniform(key: PRNGKeyArray, shape: tuple[int, ...], low: float, high: float) -> Float[Array, "..."]:
    return jnp.exp(jax.random.uniform(key, shape, minval=np.log(low), maxval=np.log(high)))
