"""The oracle: the posterior under the exact likelihood, for tasks that have one."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.samplers import require_converged, sample_independence
from nsmbayes.tasks import Task

_CHAINS = 4
_STAGE = 1000


def has_oracle(task: Task) -> bool:
    """Whether the exact likelihood of the task is known."""
    return task.log_prob is not None


@double_precision
def oracle_posterior(task: Task, clean_x: Any, *, draws: int, seed: int) -> Float[np.ndarray, "draws d_theta"]:
    """Draw from the posterior of theta under the exact likelihood of uncontaminated observations.

    Raises `ConvergenceError` if the chains have not converged.

    Args:
        task: a task with an exact likelihood, see `has_oracle`.
        clean_x: observations without contamination, shape (n, d_x).
        draws: number of draws.
        seed: an integer.
    """
    if task.log_prob is None:
        raise InputError(f"`task` {task.name!r} has no exact likelihood: its `log_prob` is None.")
    draws = checks.integer(draws, "draws", at_least=1)
    x = checks.matrix(clean_x, "clean_x", width=len(task.x_names))
    data = _Data(task.prior.mean, task.prior.precision, x)
    result = sample_independence(
        _log_prior,
        _loss(task.log_prob),
        task.prior.sample((_STAGE,), seed),
        data,
        beta=1.0,
        chains=_CHAINS,
        draws=max(500, -(-draws // _CHAINS)),
        key=random_key(seed),
    )
    flat = require_converged(result).flat
    return flat[np.linspace(0, len(flat) - 1, draws).round().astype(int)]


class _Data(NamedTuple):
    mean: Float[np.ndarray, " d_theta"]
    precision: Float[np.ndarray, "d_theta d_theta"]
    x: Float[np.ndarray, "n d_x"]


def _log_prior(theta: Float[Array, " d_theta"], data: _Data) -> Float[Array, ""]:
    residual = theta - data.mean
    return -0.5 * residual @ data.precision @ residual


@functools.cache  # the same function for the same likelihood, to avoid another compilation
def _loss(log_prob: Callable[..., Array]) -> Callable[[Float[Array, " d_theta"], _Data], Float[Array, ""]]:
    def loss(theta, data):
        return -jax.vmap(log_prob, (None, 0))(theta, jnp.asarray(data.x)).sum()

    return loss
