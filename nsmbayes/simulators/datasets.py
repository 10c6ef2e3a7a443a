"""Data sets of several observations at each parameter, for methods that learn from whole data sets."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.priors import unconstrained
from nsmbayes.simulators.base import Simulator, as_simulator


@double_precision
def simulate_sets(
    prior: Any, simulator: Any, *, m: int, n: int, seed: int
) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m n d_x"]]:
    """`m` draws of theta from the prior, and a data set of `n` observations for each: m n calls of the simulator.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> theta, x = nsm.simulate_sets(task.prior, task, m=5, n=100, seed=0)
        >>> theta.shape, x.shape
        ((5, 4), (5, 100, 1))
    """
    m, n = checks.integer(m, "m", at_least=1), checks.integer(n, "n", at_least=1)
    key_theta, key_x = jax.random.split(random_key(seed))
    theta = np.asarray(unconstrained(prior).distribution.sample(key_theta, (m,)))
    return theta, sets_at(as_simulator(simulator), theta, n, key_x)


def sets_at(
    simulator: Simulator, theta: Float[np.ndarray, "m d_theta"], n: int, key: Key[Array, ""]
) -> Float[np.ndarray, "m n d_x"]:
    """A data set of n observations for each row of theta."""
    x = simulator.rows(jax.random.split(key, len(theta) * n), np.repeat(theta, n, axis=0))
    return x.reshape(len(theta), n, -1)
