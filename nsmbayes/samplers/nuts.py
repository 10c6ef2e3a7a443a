"""The no-U-turn sampler: several chains at once, each of which tunes its own step size and mass matrix."""

from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.base import get_filter_adapt_info_fn
from jaxtyping import Array, Key

from nsmbayes._precision import double_precision
from nsmbayes.samplers.chains import Draws, LogDensity, run_chains


@double_precision
def sample_nuts(
    log_density: LogDensity,
    initial_positions: Any,
    data: Any = None,
    *,
    warmup: int,
    draws: int,
    key: Key[Array, ""],
) -> Draws:
    """Draws from the density proportional to exp(log_density(position, data)).

    Compilation takes seconds and is kept: a second call with the same function and data of the same shapes
    only runs. So define `log_density` once, outside loops, and pass what changes in `data`.

    Args:
        log_density: a JAX function of one flat position and of `data`, differentiable in the position.
        initial_positions: where the chains start, shape (chains, d); the density must be positive there.
        data: any pytree; its arrays and floats are traced.
        warmup: steps of each chain spent on tuning, not kept.
        draws: steps kept of each chain, at least 4.
        key: a JAX random key.

    Example:
        >>> import numpy as np
        >>> def log_density(position, data):
        ...     return -0.5 * jnp.sum((position - data) ** 2)
        >>> start = np.zeros((2, 1))
        >>> result = sample_nuts(log_density, start, data=3.0, warmup=100, draws=200, key=jax.random.key(0))
        >>> result.positions.shape, bool(abs(result.positions.mean() - 3) < 1)
        ((2, 200, 1), True)
    """
    return run_chains(_run, log_density, initial_positions, data, warmup=warmup, draws=draws, key=key)


@eqx.filter_jit
def _run(log_density, data, initial_positions, key, warmup, draws):
    def target(position):
        return jnp.asarray(log_density(position, data), position.dtype)

    # Parameters are few here, so that a dense mass matrix costs nothing and removes their correlations.
    adaptation = blackjax.window_adaptation(
        blackjax.nuts, target, is_mass_matrix_diagonal=False, adaptation_info_fn=get_filter_adapt_info_fn()
    )
    kernel = blackjax.nuts.build_kernel()

    def chain(key, position):
        warmup_key, draws_key = jax.random.split(key)
        # BlackJAX's own type of `run` forgets num_steps.
        (state, parameters), _ = adaptation.run(warmup_key, position, num_steps=warmup)  # pyright: ignore[reportCallIssue]

        def step(state, key):
            state, info = kernel(key, state, target, **parameters)
            return state, (state.position, info.acceptance_rate, info.is_divergent)

        _, (positions, acceptance_rate, is_divergent) = jax.lax.scan(step, state, jax.random.split(draws_key, draws))
        return target(position), positions, acceptance_rate.mean(), is_divergent.sum()

    return jax.vmap(chain)(jax.random.split(key, len(initial_positions)), initial_positions)
