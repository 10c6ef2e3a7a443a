"""Common parts of the samplers that run several chains: arguments, results and diagnostics."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from scipy.special import ndtri
from scipy.stats import rankdata

from nsmbayes._internal import checks
from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.samplers.students import Population

MAX_R_HAT, MIN_ESS = 1.05, 100.0  # draws with a larger R-hat or a smaller ESS have not converged

LogProb = Callable[[Float[Array, " d"], Any], Float[Array, ""]]


class Draws(NamedTuple):
    """Draws of several chains, with diagnostics."""

    positions: Float[np.ndarray, "chains draws d"]
    """The draws, without the warm-up."""
    acceptance_rate: Float[np.ndarray, " chains"]
    """Mean acceptance probability of each chain: NUTS aims at 0.8, slice sampling never rejects (1)."""
    divergences: Int[np.ndarray, " chains"]
    """Number of divergent trajectories of each chain; 0 for slice sampling."""
    r_hat: Float[np.ndarray, " d"]
    """Rank-normalised split R-hat (Vehtari et al. 2021): 1 if all chains sampled the same distribution."""
    ess_bulk: Float[np.ndarray, " d"]
    """Bulk effective sample size: the number of independent draws that would estimate the mean equally well."""
    ess_tail: Float[np.ndarray, " d"]
    """Tail effective sample size: the same for the 5 and 95 % quantiles."""
    note: str = ""
    """A note for users on how the draws were made."""
    visited: Population | None = None
    """All parameters at which the sampler evaluated the loss during adaptation, if it keeps them."""

    @property
    def flat(self) -> Float[np.ndarray, "total d"]:
        """The draws of all chains, stacked in one array."""
        return self.positions.reshape(-1, self.positions.shape[-1])


def has_converged(result: Draws, *, max_r_hat: float = MAX_R_HAT, min_ess: float = MIN_ESS) -> bool:
    """Whether the chains agree and the effective sample sizes are large enough; False if any of them is NaN."""
    return agree(Diagnostics(result.r_hat, result.ess_bulk, result.ess_tail), max_r_hat=max_r_hat, min_ess=min_ess)


def require_converged(result: Draws, *, max_r_hat: float = MAX_R_HAT, min_ess: float = MIN_ESS) -> Draws:
    """Return `result` if it has converged; otherwise raise a `ConvergenceError` that says what is wrong."""
    worst_r_hat, least_ess = result.r_hat.max(), result.ess_bulk.min()
    if has_converged(result, max_r_hat=max_r_hat, min_ess=min_ess):
        return result
    raise ConvergenceError(
        f"The chains have not converged: the largest R-hat is {worst_r_hat:.3f} (at most {max_r_hat:g} is accepted) "
        f"and the smallest effective sample size {least_ess:.0f} (at least {min_ess:g}), with "
        f"{result.divergences.sum()} divergent steps. Take more warm-up steps and draws, or start the chains "
        "closer to the bulk of the posterior."
    )


def require_movement(result: Draws) -> Draws:
    """Return `result` if any chain has moved at all; otherwise raise a `ConvergenceError`."""
    if np.ptp(result.positions, axis=1).any():
        return result
    raise ConvergenceError(
        "No chain has moved: the density is narrower than floating-point numbers can resolve. One observation far "
        "outside the range of the simulations can do that. Look for codes of missing values and drop them, or use "
        "NSMBayes, which gives far observations no weight."
    )


def run_chains(
    run: Callable[..., tuple[Any, Any, Any, Any]],
    log_prob: LogProb,
    initial_positions: Any,
    data: Any,
    *,
    warmup: int,
    draws: int,
    key: Key[Array, ""],
) -> Draws:
    """Check the arguments, run the compiled sampler and diagnose its draws.

    `run(log_prob, data, initial_positions, key, warmup, draws)` returns, for every chain, the log density at its
    start, its positions, its mean acceptance rate and its number of divergences.
    """
    initial_positions = checks.matrix(initial_positions, "initial_positions")
    warmup = checks.integer(warmup, "warmup", at_least=1)
    draws = checks.integer(draws, "draws", at_least=4)
    start, positions, acceptance_rate, divergences = jax.tree.map(
        np.array, run(log_prob, as_traced(data), initial_positions, key, warmup, draws)
    )
    if not np.isfinite(start).all():
        raise InputError(
            f"`log_prob` must be finite at every row of `initial_positions`; got {start.tolist()}. "
            "Start the chains elsewhere."
        )
    return Draws(positions, acceptance_rate, divergences, *diagnose(positions))


def as_traced(data: Any) -> Any:
    """`data` with floats as arrays: Equinox compiles floats into the program, and would recompile for other values."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, float | np.generic) else leaf, data)


class Diagnostics(NamedTuple):
    """R-hat, bulk and tail effective sample size, for every coordinate."""

    r_hat: Float[np.ndarray, " d"]
    ess_bulk: Float[np.ndarray, " d"]
    ess_tail: Float[np.ndarray, " d"]


def agree(found: Diagnostics, *, max_r_hat: float = MAX_R_HAT, min_ess: float = MIN_ESS) -> bool:
    """Whether the chains agree and the effective sample sizes are large enough; False if any of them is NaN."""
    return bool(found.r_hat.max() <= max_r_hat and found.ess_bulk.min() >= min_ess)


def diagnose(positions: Float[np.ndarray, "chains draws d"]) -> Diagnostics:
    """R-hat and effective sample sizes of several chains (Vehtari et al. 2021).

    Every chain is first split into halves, because chains that drift together agree with one another but not with
    themselves. R-hat is the larger of two values: one from the ranks, and one from the ranks of the distances to the
    median, which detects chains of different spread. NaN for a coordinate that never moved. Uses NumPy, so nothing is
    compiled.
    """
    chains, draws, d = positions.shape
    halves = positions[:, : draws // 2 * 2].reshape(2 * chains, draws // 2, d)
    ranks = _normal_scores(halves)
    folded = _normal_scores(np.abs(halves - np.median(halves, axis=(0, 1))))
    with np.errstate(invalid="ignore", divide="ignore"):
        tails = [halves <= np.quantile(halves, 0.05, axis=(0, 1)), halves >= np.quantile(halves, 0.95, axis=(0, 1))]
        return Diagnostics(
            r_hat=np.maximum(gelman_rubin(ranks), gelman_rubin(folded)),
            ess_bulk=effective_sample_size(ranks),
            ess_tail=np.minimum(*(effective_sample_size(tail.astype(float)) for tail in tails)),
        )


def _normal_scores(values: Float[np.ndarray, "chains draws d"]) -> Float[np.ndarray, "chains draws d"]:
    """The standard normal quantiles of the ranks of all draws."""
    flat = values.reshape(-1, values.shape[-1])
    return ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25)).reshape(values.shape)
