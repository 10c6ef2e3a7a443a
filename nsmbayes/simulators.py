"""Simulators that a method calls itself, how many calls it may make, and data sets made with them.

A simulator is a function `simulate(random, theta) -> x` of ONE observation: theta has shape (d_theta,), x has shape
(d_x,), and `random` is all the randomness it may use. Write it in JAX, where `random` is a key, and wrap it in
`JaxSimulator`; or in anything else, where `random` is a NumPy generator, and wrap it in `NumpySimulator`. A benchmark
task is a simulator as it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes._seeds import random_key
from nsmbayes.priors import unconstrained
from nsmbayes.tasks.base import SimulateMany, Task


class BudgetError(RuntimeError):
    """A method would have called the simulator more often than it was allowed to."""


class Simulator(ABC):
    """Something that draws one observation for each row of theta."""

    differentiable = False
    """Whether x has a derivative with respect to theta that JAX can take."""

    @abstractmethod
    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """Row i depends on `keys[i]` and `theta[i]` alone."""


class JaxSimulator(Simulator):
    """A simulator that JAX can trace: `one(key, theta) -> x`, for one theta and one x.

    Args:
        one: the function.
        differentiable: say False if it rounds, counts or branches on theta, so that derivatives mean nothing.

    Example:
        >>> import jax
        >>> import nsmbayes as nsm
        >>> simulator = nsm.JaxSimulator(lambda key, theta: theta[:1] + jax.random.normal(key, (1,)))
        >>> simulator.rows(jax.random.split(jax.random.key(0), 3), np.zeros((3, 1))).shape
        (3, 1)
    """

    def __init__(
        self,
        one: Callable[[Key[Array, ""], Float[Array, " d_theta"]], Float[Array, " d_x"]],
        *,
        differentiable: bool = True,
    ):
        if not callable(one):
            raise InputError(f"`one` must be a function of a JAX key and of theta; got {type(one).__name__}.")
        self.one, self.differentiable = one, _checks.flag(differentiable, "differentiable")
        self._rows = jax.jit(jax.vmap(one))

    @double_precision
    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """Row i depends on `keys[i]` and `theta[i]` alone."""
        return np.asarray(self._rows(keys, jnp.asarray(theta)))


class NumpySimulator(Simulator):
    """A simulator in plain Python, or anything that Python can call: `one(rng, theta) -> x`.

    It is called row after row. `rng` is a new NumPy generator each time.

    Example:
        >>> import jax
        >>> import nsmbayes as nsm
        >>> simulator = nsm.NumpySimulator(lambda rng, theta: theta + rng.standard_normal(2))
        >>> simulator.rows(jax.random.split(jax.random.key(0), 3), np.zeros((3, 2))).shape
        (3, 2)
    """

    def __init__(self, one: Callable[[np.random.Generator, Float[np.ndarray, " d_theta"]], Any]):
        if not callable(one):
            raise InputError(f"`one` must be a function of a NumPy generator and of theta; got {type(one).__name__}.")
        self.one = one

    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """Row i depends on `keys[i]` and `theta[i]` alone."""
        seeds = np.asarray(jax.random.key_data(keys))
        drawn = [self.one(np.random.default_rng(seed), row) for seed, row in zip(seeds, theta, strict=True)]
        return np.stack([np.asarray(x, dtype=np.float64).ravel() for x in drawn])


class _TaskSimulator(Simulator):
    """The simulator of a task that has none for one observation."""

    def __init__(self, simulate_many: SimulateMany):
        self._simulate_many = simulate_many

    @double_precision
    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        return self._simulate_many(keys, np.asarray(theta))


def as_simulator(value: Any) -> Simulator:
    """`value`, if it is a simulator or a task."""
    if isinstance(value, Task):
        if value.simulate_one is None:
            return _TaskSimulator(value.simulate_many)
        return JaxSimulator(value.simulate_one, differentiable=value.differentiable)
    return _checks.instance(
        value, "simulator", Simulator, "nsmbayes.JaxSimulator(f), nsmbayes.NumpySimulator(f) or a task"
    )


def require_differentiable(simulator: Simulator, method: str) -> JaxSimulator:
    """`simulator`, if it says that it is differentiable; otherwise an error that says what to do."""
    if not isinstance(simulator, JaxSimulator) or not simulator.differentiable:
        raise InputError(
            f"`simulator` must be differentiable for {method}: write it in JAX and wrap it in nsmbayes.JaxSimulator."
        )
    return simulator


def check_gradients(gradients: Float[np.ndarray, "... d"]) -> None:
    """Raise an error if the gradients of a simulator that was called differentiable are all zero."""
    if not gradients.any():
        raise InputError(
            "`simulator` was called differentiable, but its derivative with respect to theta is zero wherever it was "
            "taken, or not finite. If it rounds or counts, pass JaxSimulator(..., differentiable=False)."
        )


@double_precision
def simulate_sets(
    prior: Any, simulator: Any, *, m: int, n: int, seed: int
) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m n d_x"]]:
    """`m` draws of theta from the prior and a data set of `n` observations at each: m n calls of the simulator.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> theta, x = nsm.simulate_sets(task.prior, task, m=5, n=100, seed=0)
        >>> theta.shape, x.shape
        ((5, 4), (5, 100, 1))
    """
    m, n = _checks.integer(m, "m", at_least=1), _checks.integer(n, "n", at_least=1)
    key_theta, key_x = jax.random.split(random_key(seed))
    theta = np.asarray(unconstrained(prior).distribution.sample(key_theta, (m,)))
    return theta, sets_at(as_simulator(simulator), theta, n, key_x)


def sets_at(
    simulator: Simulator, theta: Float[np.ndarray, "m d_theta"], n: int, key: Key[Array, ""]
) -> Float[np.ndarray, "m n d_x"]:
    """A data set of n observations at each row of theta."""
    x = simulator.rows(jax.random.split(key, len(theta) * n), np.repeat(theta, n, axis=0))
    return x.reshape(len(theta), n, -1)
