"""What the samplers that run several chains have in common: their arguments, their result and its diagnostics."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction
from jaxtyping import Array, Float, Int, Key

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision

LogDensity = Callable[[Float[Array, " d"], Any], Float[Array, ""]]


class ConvergenceError(RuntimeError):
    """What a sampler returned, or would have returned, are not draws from the posterior."""


class Draws(NamedTuple):
    """Draws of several chains, and how far to trust them."""

    positions: Float[np.ndarray, "chains draws d"]
    """The draws, warm-up left out."""
    acceptance_rate: Float[np.ndarray, " chains"]
    """Mean acceptance probability of each chain: NUTS aims at 0.8, slice sampling never refuses (1)."""
    divergences: Int[np.ndarray, " chains"]
    """How many trajectories of each chain were cut off because their energy went astray; 0 for slice sampling."""
    r_hat: Float[np.ndarray, " d"]
    """Potential scale reduction of the chains cut into halves: 1 if all of them saw the same distribution."""
    ess: Float[np.ndarray, " d"]
    """Effective sample size: how many independent draws would be worth as much for the mean."""
    note: str = ""
    """What a user should know of how they were made."""

    @property
    def flat(self) -> Float[np.ndarray, "total d"]:
        """The draws of all chains below one another."""
        return self.positions.reshape(-1, self.positions.shape[-1])


def require_converged(result: Draws, *, max_r_hat: float = 1.05, min_ess: float = 100.0) -> Draws:
    """`result` itself if its chains agree; otherwise a `ConvergenceError` that says what is wrong."""
    worst_r_hat, least_ess = result.r_hat.max(), result.ess.min()
    if worst_r_hat <= max_r_hat and least_ess >= min_ess:  # False for NaN, as it should be
        return result
    raise ConvergenceError(
        f"The chains have not converged: the largest R-hat is {worst_r_hat:.3f} (at most {max_r_hat:g} is accepted) "
        f"and the smallest effective sample size {least_ess:.0f} (at least {min_ess:g}), with "
        f"{result.divergences.sum()} divergent steps. Take more warm-up steps and draws, or start the chains "
        "closer to the bulk of the posterior."
    )


def run_chains(
    run: Callable[..., tuple[Any, Any, Any, Any]],
    log_density: LogDensity,
    initial_positions: Any,
    data: Any,
    *,
    warmup: int,
    draws: int,
    key: Key[Array, ""],
) -> Draws:
    """Check the arguments, run the compiled sampler and diagnose its draws.

    `run(log_density, data, initial_positions, key, warmup, draws)` returns, for every chain, the log density at its
    start, its positions, its mean acceptance rate and its number of divergences.
    """
    initial_positions = _checks.matrix(initial_positions, "initial_positions")
    warmup = _checks.integer(warmup, "warmup", at_least=1)
    draws = _checks.integer(draws, "draws", at_least=4)
    start, positions, acceptance_rate, divergences = jax.tree.map(
        np.array, run(log_density, as_traced(data), initial_positions, key, warmup, draws)
    )
    if not np.isfinite(start).all():
        raise InputError(
            f"`log_density` must be finite at every row of `initial_positions`; got {start.tolist()}. "
            "Start the chains elsewhere."
        )
    return Draws(positions, acceptance_rate, divergences, *diagnose(positions))


def as_traced(data: Any) -> Any:
    """`data` with its floats as arrays: Equinox would compile a float into the program, and again for the next one."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, float | np.generic) else leaf, data)


@double_precision
def diagnose(
    positions: Float[np.ndarray, "chains draws d"],
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """R-hat of the halved chains and effective sample size, for every coordinate."""
    r_hat, ess = _diagnostics(positions)
    return np.asarray(r_hat), np.asarray(ess)


@jax.jit
def _diagnostics(positions):
    # In halves, because chains that all drift together agree with one another but not with themselves.
    chains, draws, d = positions.shape
    halves = positions[:, : draws // 2 * 2].reshape(2 * chains, draws // 2, d)
    return potential_scale_reduction(halves).reshape(d), effective_sample_size(positions).reshape(d)
