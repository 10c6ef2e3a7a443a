"""Adaptive Langevin dynamics: sampling with gradients whose noise level is unknown (Jones and Leimkuhler 2011).

A particle with momentum p is subject to the gradient, to friction xi p and to noise. The noise of the gradient heats it
up; a thermostat raises the friction until the kinetic energy is that of temperature one. So the variance of the
gradient need not be known.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Gradient = Callable[[Float[Array, " d"], Key[Array, ""]], Float[Array, " d"]]

_NOISE = 1.0  # strength A of the added noise, and the initial friction of the thermostat
_THERMOSTAT = 1.0  # how fast the friction follows the kinetic energy


def adaptive_langevin(
    gradient: Gradient, start: Float[Array, " d"], key: Key[Array, ""], *, steps: int, step_size: Any
) -> Float[Array, "steps d"]:
    """Positions of ONE chain whose density is proportional to exp(-U), from unbiased gradients of U. JAX can trace it.

    The step size must be small relative to the noise of the gradient: the bias grows with
    step_size * standard deviation.

    Args:
        gradient: `gradient(position, key)`, an unbiased estimate of the gradient of U.
        start: the starting position of the chain.
        key: a JAX random key.
        steps: number of steps, each of which takes one gradient.
        step_size: h in dx = p h.

    Example:
        >>> def gradient(x, key):
        ...     return x - 3.0 + jax.random.normal(key, x.shape)
        >>> chain = adaptive_langevin(gradient, jnp.zeros(1), jax.random.key(0), steps=4000, step_size=0.1)
        >>> chain.shape, bool(abs(chain.mean() - 3) < 0.3)
        ((4000, 1), True)
    """
    h, d = step_size, len(start)

    def step(carry, key):
        x, p, xi = carry
        key_gradient, key_noise = jax.random.split(key)
        p = p - h * gradient(x, key_gradient)
        # exact solution for the friction and noise of one step, for either sign of xi
        damping = jnp.exp(-xi * h)
        spread = jnp.where(jnp.abs(xi) > 1e-6, -jnp.expm1(-2 * xi * h) / jnp.where(xi == 0, 1.0, xi), 2 * h)
        p = damping * p + jnp.sqrt(_NOISE * spread) * jax.random.normal(key_noise, x.shape, x.dtype)
        x = x + h * p
        xi = xi + _THERMOSTAT * h * (p @ p / d - 1)
        return (x, p, xi), x

    key_start, key_steps = jax.random.split(key)
    momentum = jax.random.normal(key_start, start.shape, start.dtype)
    carry = start, momentum, jnp.asarray(_NOISE, start.dtype)
    _, positions = jax.lax.scan(step, carry, jax.random.split(key_steps, steps))
    return positions
