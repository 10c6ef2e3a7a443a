"""Hit-and-run slice sampling, the sampler of the paper: no gradient, no step size, nothing to tune by hand."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import welford_algorithm
from blackjax.mcmc import slice as blackjax_slice
from jaxtyping import Array, Key

from nsmbayes._internal.linalg import cholesky
from nsmbayes._internal.precision import double_precision
from nsmbayes.samplers.chains import Draws, LogProb, run_chains

# In standard deviations along the direction: a Gaussian slice is 3.2 wide on average.
_WIDTH = 3.0
_MAX_EXPANSIONS = 64
_SHORTEST_WINDOW = 10  # steps per dimension, so that the covariance is regular


@double_precision
def sample_slice(
    log_prob: LogProb,
    initial_positions: Any,
    data: Any = None,
    *,
    per_chain_data: Any = None,
    warmup: int,
    draws: int,
    key: Key[Array, ""],
) -> Draws:
    """Draws from the density proportional to exp(log_prob(position, data)), which need not be differentiable.

    Every step draws a direction and slices the density along that line (Neal 2003, stepping out and shrinking). The
    warm-up learns the covariance from which each chain draws its directions. One step moves along one line only, so
    with d parameters an independent draw needs several times d steps: look at `Draws.ess_bulk`. The paper takes 500
    warm-up steps and 500 draws.

    Compilation is cached as in `sample_nuts`, and the arguments are the same.

    Args:
        log_prob: a JAX function of one flat position and of `data`; NaN counts as a density of zero.
        initial_positions: starting positions of the chains, shape (chains, d); the density must be positive there.
        data: any pytree; its arrays and floats are traced.
        per_chain_data: a pytree of arrays with one entry for each chain. If it is given, chains sample different
            densities: `log_prob(position, (data, data_of_the_chain))`. Their R-hat and ESS then mean nothing.
        warmup: tuning steps of each chain, which are not kept.
        draws: steps kept of each chain, at least 4.
        key: a JAX random key.

    Example:
        >>> def log_prob(position, data):
        ...     return -jnp.abs(position[0] - data)
        >>> start = np.zeros((2, 1))
        >>> result = sample_slice(log_prob, start, data=3.0, warmup=100, draws=500, key=jax.random.key(0))
        >>> result.positions.shape, bool(abs(result.positions.mean() - 3) < 1)
        ((2, 500, 1), True)
    """

    def run(*given):
        return _run(per_chain_data, *given)

    return run_chains(run, log_prob, initial_positions, data, warmup=warmup, draws=draws, key=key)


@eqx.filter_jit
def _run(per_chain_data, log_prob, data, initial_positions, key, warmup, draws):
    kernel = blackjax_slice.build_kernel(blackjax_slice.stepping_out, max_expansions=_MAX_EXPANSIONS)
    d = initial_positions.shape[1]
    no_moments, add_to_moments, covariance_of = welford_algorithm(is_diagonal_matrix=False)

    def close_window(root, moments):
        covariance, _, _ = covariance_of(moments)
        new = cholesky(covariance)
        # A chain that has not moved has no covariance to learn from.
        return jnp.where(jnp.isfinite(new).all(), new, root), no_moments(d)

    def step(carry, inputs, target):
        state, root, moments = carry
        key, window_ends = inputs
        state, info = kernel(key, state, target, _along(root), _WIDTH)
        moments = add_to_moments(moments, state.position)
        root, moments = jax.lax.cond(window_ends, close_window, lambda *same: same, root, moments)
        return (state, root, moments), (state.position, info.is_accepted)

    def chain(key, position, per_chain_data):
        def target(position):
            given = data if per_chain_data is None else (data, per_chain_data)
            return jnp.asarray(log_prob(position, given), position.dtype)

        start = blackjax_slice.init(position, target)
        carry = start, jnp.eye(d), no_moments(d)
        inputs = jax.random.split(key, warmup + draws), _window_ends(warmup, draws, d)
        _, (positions, is_accepted) = jax.lax.scan(functools.partial(step, target=target), carry, inputs)
        return start.logdensity, positions[warmup:], is_accepted[warmup:].mean(), jnp.zeros((), int)

    return jax.vmap(chain)(jax.random.split(key, len(initial_positions)), initial_positions, per_chain_data)


def _along(root):
    """Lines through the current point whose direction is root @ (a point of the unit sphere).

    BlackJAX's own `direction_proposal` rescales the direction to unit length in the coordinates of the user, where no
    one bracket width fits a long and a short axis.
    """

    def proposal(key, position, target):
        direction = root @ blackjax_slice.sample_direction(key, position)

        def point(t):
            x = position + t * direction
            return blackjax_slice.SliceState(x, target(x)), True

        return point

    return proposal


def _window_ends(warmup: int, draws: int, d: int) -> np.ndarray:
    """When the covariance is estimated again: after 1/16, 1/8, 1/4, 1/2 and all of the warm-up, from that window only.

    So a distant start, or a scale far from one, is forgotten after a few short windows.
    """
    ends = np.array([warmup >> halvings for halvings in range(5)])
    return np.isin(np.arange(1, warmup + draws + 1), ends[ends >= _SHORTEST_WINDOW * d])
