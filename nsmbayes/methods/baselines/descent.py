"""Adam on a stochastic loss, for methods that simulate at every step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key


def stochastic_descent(
    loss: Callable[[Float[Array, " d"], Key[Array, ""]], Float[Array, ""]],
    start: Float[Array, " d"],
    key: Key[Array, ""],
    *,
    steps: int,
    rate: Any,
    decay: bool,
) -> tuple[Float[Array, " d"], Float[Array, "steps d"]]:
    """Minimise a stochastic loss with Adam, with a new key for `loss(position, key)` in every step. JAX can trace it.

    Coordinates of a gradient that are not finite count as zero.

    Args:
        loss: a function of a position and a key.
        start: the initial position.
        key: a JAX random key.
        steps: number of steps, with one gradient each.
        rate: learning rate: approximately the size of one step.
        decay: whether the learning rate falls to zero along a cosine, so that the last steps are less noisy.

    Returns:
        The last position, and the gradients of all steps.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps) if decay else rate)

    def step(carry, key):
        position, state = carry
        gradient = jax.grad(loss)(position, key)
        gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)
        updates, state = optimiser.update(gradient, state)
        return (position + updates, state), gradient

    (position, _), gradients = jax.lax.scan(step, (start, optimiser.init(start)), jax.random.split(key, steps))
    return position, gradients
