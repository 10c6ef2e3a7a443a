"""The no-U-turn sampler: several chains in parallel, each of which tunes its own step size and mass matrix."""

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.base import get_filter_adapt_info_fn
from jaxtyping import Array, Float, Key

from nsmbayes._internal.parallel import call_each
from nsmbayes._internal.precision import double_precision
from nsmbayes.samplers.chains import Draws, LogProb, run_chains


@double_precision
def sample_nuts(
    log_prob: LogProb,
    initial_positions: Any,
    data: Any = None,
    *,
    warmup: int,
    draws: int,
    key: Key[Array, ""],
    scales: Float[np.ndarray, "chains d d"] | None = None,
) -> Draws:
    """Draws from the density proportional to exp(log_prob(position, data)).

    Compilation takes seconds and is cached: a second call with the same function and data of the same shapes is not
    compiled again. So define `log_prob` once, outside loops, and pass everything that changes in `data`.

    Args:
        log_prob: a JAX function of one flat position and of `data`, differentiable in the position.
        initial_positions: starting positions of the chains, shape (chains, d); the density must be positive there.
        data: any pytree; its arrays and floats are traced.
        warmup: tuning steps of each chain, which are not kept.
        draws: steps kept of each chain, at least 4.
        key: a JAX random key.
        scales: for each chain, a guess of a factor F of the covariance F F' of the density; a good guess saves warm-up.

    Example:
        >>> def log_prob(position, data):
        ...     return -0.5 * jnp.sum((position - data) ** 2)
        >>> start = np.zeros((2, 1))
        >>> result = sample_nuts(log_prob, start, data=3.0, warmup=100, draws=200, key=jax.random.key(0))
        >>> result.positions.shape, bool(abs(result.positions.mean() - 3) < 1)
        ((2, 200, 1), True)
    """

    def run(log_prob, data, initial_positions, key, warmup, draws):
        chains, d = initial_positions.shape
        factors = np.tile(np.eye(d), (chains, 1, 1)) if scales is None else np.asarray(scales)
        keys = jax.random.split(key, chains)
        each = zip(keys, initial_positions, factors, strict=True)
        parts = call_each(_chain, [(log_prob, data, *one, warmup, draws) for one in each])
        return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    return run_chains(run, log_prob, initial_positions, data, warmup=warmup, draws=draws, key=key)


def _chain(log_prob, data, key, start, factor, warmup, draws):
    """One chain, in coordinates z of position = start + F z."""

    def target(z):
        return jnp.asarray(log_prob(start + factor @ z, data), z.dtype)

    # There are few parameters, so a dense mass matrix costs nothing and removes their correlations.
    adaptation = blackjax.window_adaptation(
        blackjax.nuts, target, is_mass_matrix_diagonal=False, adaptation_info_fn=get_filter_adapt_info_fn()
    )
    kernel = blackjax.nuts.build_kernel()
    warmup_key, draws_key = jax.random.split(key)
    # The type annotation of BlackJAX's `run` lacks num_steps.
    origin = jnp.zeros_like(start)
    (state, parameters), _ = adaptation.run(warmup_key, origin, num_steps=warmup)  # pyright: ignore[reportCallIssue]

    def step(state, key):
        state, info = kernel(key, state, target, **parameters)
        return state, (state.position, info.acceptance_rate, info.is_divergent)

    _, (z, acceptance_rate, is_divergent) = jax.lax.scan(step, state, jax.random.split(draws_key, draws))
    return target(origin), start + z @ factor.T, acceptance_rate.mean(), is_divergent.sum()
