"""Minima of a function of few parameters: a smooth one by Newton's method from many starts, a noisy one by Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from nsmbayes._precision import double_precision

_STEPS = 60
_HALVINGS = 10
_LONGEST = 1.0  # of a step, in the units of the starts' spread
_BATCH = 8
_SAME = 1e-2  # minima closer than this, in the same units, are one


class Minima(NamedTuple):
    """The distinct local minima that were found, the lowest first, and how many starts led to each."""

    points: Float[np.ndarray, "k d"]
    values: Float[np.ndarray, " k"]
    starts: Int[np.ndarray, " k"]


@double_precision
def minimise(
    function: Callable[[Float[Array, " d"], Any], Float[Array, ""]], data: Any, starts: Float[np.ndarray, "starts d"]
) -> Minima:
    """Local minima of `function(position, data)` reached from each start.

    A step solves with the absolute values of the Hessian's eigenvalues, so that it always goes down, and is halved
    until it does. Starts whose path ends where the function is not finite are left out.

    Example:
        >>> def double_well(u, data):
        ...     return ((u[0] ** 2 - 1) ** 2 + 0.1 * u[0]).astype(float)
        >>> found = minimise(double_well, None, np.linspace(-2, 2, 8)[:, None])
        >>> found.points.round(2).tolist(), found.starts.tolist()
        ([[-1.01], [0.99]], [4, 4])
    """
    spread = np.maximum(starts.std(axis=0), 1e-12)
    ends, values = map(np.asarray, _descend(function, data, jnp.asarray(starts), jnp.asarray(spread)))
    order = np.argsort(values)
    order = order[np.isfinite(values[order])]
    representatives: list[int] = []
    counts: list[int] = []
    for i in order:
        near = [np.abs((ends[i] - ends[j]) / spread).max() < _SAME for j in representatives]
        if any(near):
            counts[near.index(True)] += 1
        else:
            representatives.append(int(i))
            counts.append(1)
    return Minima(ends[representatives], values[representatives], np.asarray(counts))


def stochastic_descent(
    loss: Callable[[Float[Array, " d"], Key[Array, ""]], Float[Array, ""]],
    start: Float[Array, " d"],
    key: Key[Array, ""],
    *,
    steps: int,
    rate: Any,
    decay: bool,
) -> tuple[Float[Array, " d"], Float[Array, "steps d"]]:
    """Adam on a loss whose randomness `loss(position, key)` is redrawn in every step. JAX can trace it.

    Args:
        loss: a function of one position.
        start: where to start.
        key: a JAX random key.
        steps: how many, each of which takes one gradient.
        rate: learning rate: about how far one step goes. Coordinates of a gradient that are not finite count as zero.
        decay: let it fall to zero along a cosine, so that the end is no longer noisy.

    Returns:
        Where it ends, and the gradients on the way.
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


@eqx.filter_jit
def _descend(function, data, starts, spread):
    def scaled(v):
        return function(v * spread, data)

    def step(carry, _):
        v, value = carry
        gradient, hessian = jax.grad(scaled)(v), jax.hessian(scaled)(v)
        usable = jnp.isfinite(gradient).all() & jnp.isfinite(hessian).all()
        curvatures, axes = jnp.linalg.eigh(jnp.where(usable, hessian, jnp.eye(len(v))))
        curvatures = jnp.maximum(jnp.abs(curvatures), 1e-8 * jnp.abs(curvatures).max() + 1e-300)
        move = -axes @ ((axes.T @ jnp.where(usable, gradient, 0.0)) / curvatures)
        move = move * jnp.minimum(1.0, _LONGEST / jnp.maximum(jnp.linalg.norm(move), 1e-300))
        tries = v + move * 0.5 ** jnp.arange(_HALVINGS)[:, None]
        values = jax.vmap(scaled)(tries)
        values = jnp.where(jnp.isfinite(values), values, jnp.inf)
        first = jnp.argmax(values < value)  # the longest step that goes down; 0 if none does
        better = values[first] < value
        return (jnp.where(better, tries[first], v), jnp.where(better, values[first], value)), None

    def descend(start):
        v = start / spread
        value = scaled(v)
        carry = (v, jnp.where(jnp.isfinite(value), value, jnp.inf))
        (v, value), _ = jax.lax.scan(step, carry, length=_STEPS)
        return v * spread, value

    return jax.lax.map(descend, starts, batch_size=_BATCH)
