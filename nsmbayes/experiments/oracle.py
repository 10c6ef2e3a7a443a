"""The best that could be done: the posterior under the exact likelihood, where a task has one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes.samplers import require_converged, sample_independence
from nsmbayes.tasks import Task
from nsmbayes.tasks.base import random_key
from nsmbayes.tasks.gnk_exact import log_prob

_CHAINS = 4
_STAGE = 1000


def has_oracle(task: Task) -> bool:
    """Whether the exact likelihood of the task is known."""
    return task.name == "gnk"


@double_precision
def oracle_posterior(task: Task, clean_x: Any, *, draws: int, seed: int) -> Float[np.ndarray, "draws d_theta"]:
    """Draws from the posterior of theta under the exact likelihood of uncontaminated observations.

    If the chains disagree a `ConvergenceError` is raised.

    Args:
        task: a task with an exact likelihood: "gnk".
        clean_x: observations without contamination, shape (n, 1) or (n,).
        draws: how many draws to return.
        seed: a whole number.
    """
    if not has_oracle(task):
        raise InputError(f"`task` {task.name!r} has no exact likelihood; use 'gnk'.")
    draws = _checks.integer(draws, "draws", at_least=1)
    x = _checks.matrix(clean_x, "clean_x", width=1)[:, 0]
    data = _Data(task.prior.mean, task.prior.precision, x)
    result = sample_independence(
        _log_prior,
        _loss,
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
    mean: Float[np.ndarray, "4"]
    precision: Float[np.ndarray, "4 4"]
    x: Float[np.ndarray, " n"]


def _log_prior(theta: Float[Array, "4"], data: _Data) -> Float[Array, ""]:
    residual = theta - data.mean
    return -0.5 * residual @ data.precision @ residual


def _loss(theta: Float[Array, "4"], data: _Data) -> Float[Array, ""]:
    return -jax.vmap(log_prob, (None, 0))(theta, jnp.asarray(data.x)).sum()
