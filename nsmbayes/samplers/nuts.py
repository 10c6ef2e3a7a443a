"""The no-U-turn sampler: several chains at once, each of which tunes its own step size and mass matrix."""

from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.base import get_filter_adapt_info_fn
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction
from jaxtyping import Array, Float, Int, Key

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision


class ConvergenceError(RuntimeError):
    """The chains do not agree, so that their draws are not draws from the posterior."""


class Draws(NamedTuple):
    """Draws of several chains, and how far to trust them."""

    positions: Float[np.ndarray, "chains draws d"]
    """The draws, warm-up left out."""
    acceptance_rate: Float[np.ndarray, " chains"]
    """Mean acceptance probability of each chain; the warm-up aims at 0.8."""
    divergences: Int[np.ndarray, " chains"]
    """How many trajectories of each chain were cut off because their energy went astray."""
    r_hat: Float[np.ndarray, " d"]
    """Potential scale reduction of the chains cut into halves: 1 if all of them saw the same distribution."""
    ess: Float[np.ndarray, " d"]
    """Effective sample size: how many independent draws would be worth as much for the mean."""

    @property
    def flat(self) -> Float[np.ndarray, "total d"]:
        """The draws of all chains below one another."""
        return self.positions.reshape(-1, self.positions.shape[-1])


@double_precision
def sample_nuts(
    log_density: Callable[[Float[Array, " d"], Any], Float[Array, ""]],
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
        >>> def log_density(position, data):
        ...     return -0.5 * jnp.sum((position - data) ** 2)
        >>> start = np.zeros((2, 1))
        >>> result = sample_nuts(log_density, start, data=3.0, warmup=100, draws=200, key=jax.random.key(0))
        >>> result.positions.shape, bool(abs(result.positions.mean() - 3) < 1)
        ((2, 200, 1), True)
    """
    initial_positions = _checks.matrix(initial_positions, "initial_positions")
    warmup = _checks.integer(warmup, "warmup", at_least=1)
    draws = _checks.integer(draws, "draws", at_least=4)
    # Equinox would compile a float into the program, and compile again for the next one.
    data = jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, float | np.generic) else leaf, data)
    start, positions, acceptance_rate, divergences = jax.tree.map(
        np.array, _run(log_density, data, initial_positions, key, warmup, draws)
    )
    if not np.isfinite(start).all():
        raise InputError(
            f"`log_density` must be finite at every row of `initial_positions`; got {start.tolist()}. "
            "Start the chains elsewhere."
        )
    return Draws(positions, acceptance_rate, divergences, *_diagnose(positions))


def require_converged(result: Draws, *, max_r_hat: float = 1.05, min_ess: float = 100.0) -> Draws:
    """`result` itself if its chains agree; otherwise a `ConvergenceError` that says what is wrong."""
    worst_r_hat, least_ess = result.r_hat.max(), result.ess.min()
    if worst_r_hat <= max_r_hat and least_ess >= min_ess:  # False for NaN, as it should be
        return result
    raise ConvergenceError(
        f"NUTS has not converged: the largest R-hat is {worst_r_hat:.3f} (at most {max_r_hat:g} is accepted) "
        f"and the smallest effective sample size {least_ess:.0f} (at least {min_ess:g}), with "
        f"{result.divergences.sum()} divergent steps. Take more warm-up steps and draws, or start the chains "
        "closer to the bulk of the posterior."
    )


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


@jax.jit
def _diagnostics(positions):
    # In halves, because chains that all drift together agree with one another but not with themselves.
    chains, draws, d = positions.shape
    halves = positions[:, : draws // 2 * 2].reshape(2 * chains, draws // 2, d)
    return potential_scale_reduction(halves).reshape(d), effective_sample_size(positions).reshape(d)


@double_precision
def _diagnose(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r_hat, ess = _diagnostics(positions)
    return np.asarray(r_hat), np.asarray(ess)
