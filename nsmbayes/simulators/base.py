"""Simulators that methods can call.

A simulator is a function `simulate(random, theta) -> x` of ONE observation: theta has shape (d_theta,), x has shape
(d_x,), and `random` is its only source of randomness. If it is written in JAX, `random` is a key; wrap it in
`JaxSimulator`. Otherwise `random` is a NumPy generator; wrap it in `NumpySimulator`. Wrap a function of many theta in
`BatchSimulator`, and a program that is started for each theta in `CommandSimulator`. A benchmark task can be used
directly.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.calls import Caller, OneByOne
from nsmbayes.errors import InputError
from nsmbayes.simulators.numbered import row_keys


class Simulator(ABC):
    """Base class of simulators, which draw one observation per row of theta."""

    differentiable = False
    """Whether JAX can differentiate x with respect to theta."""

    @abstractmethod
    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """One observation per row; row i depends only on `keys[i]` and `theta[i]`."""

    def __call__(self, theta: Any, *, seed: int = 0) -> Float[np.ndarray, "*m d_x"]:
        """One observation for each row of theta (m, d_theta), or for one theta (d_theta,)."""
        theta, seed = checks.finite_array(theta, "theta"), checks.integer(seed, "seed")
        if theta.ndim not in (1, 2):
            raise InputError(f"`theta` must have shape (m, d_theta) or (d_theta,); got {theta.shape}.")
        rows = np.atleast_2d(theta)
        x = self.rows(row_keys(seed, 0, len(rows)), rows)
        return x if theta.ndim == 2 else x[0]

    def caller(self) -> Caller:
        """An object that simulates numbered rows, in this process or in another one."""
        return _ByKeys(self)

    def identity(self) -> tuple[Any, ...]:
        """Values that identify this simulator, for the fingerprint of a campaign."""
        return tuple(sorted((name, value) for name, value in vars(self).items() if not name.startswith("_")))


class JaxSimulator(Simulator):
    """A simulator that JAX can trace: `one(key, theta) -> x`, for one theta and one x.

    Args:
        one: the function.
        differentiable: pass False if the function rounds, counts or branches on theta, so that its derivatives are
            meaningless.

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
        self.one, self.differentiable = one, checks.flag(differentiable, "differentiable")
        self._rows = jax.jit(jax.vmap(one))

    @double_precision
    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """One observation per row; row i depends only on `keys[i]` and `theta[i]`."""
        return np.asarray(self._rows(keys, jnp.asarray(theta)))


class NumpySimulator(Simulator):
    """A simulator in plain Python, or in anything that Python can call: `one(rng, theta) -> x`.

    The function is called once per row, each time with a new NumPy generator `rng`.

    Example:
        >>> import jax
        >>> import nsmbayes as nsm
        >>> simulator = nsm.NumpySimulator(lambda rng, theta: theta + rng.standard_normal(2))
        >>> simulator(np.zeros((3, 2)), seed=0).shape
        (3, 2)
        >>> simulator.rows(jax.random.split(jax.random.key(0), 3), np.zeros((3, 2))).shape
        (3, 2)
    """

    def __init__(self, one: Callable[[np.random.Generator, Float[np.ndarray, " d_theta"]], Any]):
        if not callable(one):
            raise InputError(f"`one` must be a function of a NumPy generator and of theta; got {type(one).__name__}.")
        self.one = one

    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """One observation per row; row i depends only on `keys[i]` and `theta[i]`."""
        drawn = [self.one(rng, row) for rng, row in zip(key_generators(keys), theta, strict=True)]
        return np.stack([np.asarray(x, dtype=np.float64).ravel() for x in drawn])

    def caller(self) -> OneByOne:
        """An object that simulates numbered rows."""
        return OneByOne(self.one)


class _ByKeys:
    """A simulator whose rows have JAX keys. Calls always have the same number of rows, so results are reproducible."""

    calls_of = 256

    def __init__(self, simulator: Simulator):
        self.simulator = simulator

    def numbered(self, seed: int, first: int, theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """Observations of consecutive rows, starting at row `first`."""
        return self.simulator.rows(row_keys(seed, first, len(theta)), theta)


def key_generators(keys: Key[Array, " m"]) -> Iterator[np.random.Generator]:
    """A new NumPy generator for each key."""
    return map(np.random.default_rng, np.asarray(jax.random.key_data(keys)))


def as_simulator(value: Any) -> Simulator:
    """`value` as a simulator; an object with `as_simulator`, such as a task, is converted."""
    if hasattr(value, "as_simulator"):
        value = value.as_simulator()
    return checks.instance(
        value, "simulator", Simulator, "nsmbayes.JaxSimulator(f), nsmbayes.NumpySimulator(f) or a task"
    )


def require_differentiable(simulator: Simulator, method: str) -> JaxSimulator:
    """Return `simulator` if it is declared differentiable; otherwise raise an error that says what to do."""
    if not isinstance(simulator, JaxSimulator) or not simulator.differentiable:
        raise InputError(
            f"`simulator` must be differentiable for {method}: write it in JAX and wrap it in nsmbayes.JaxSimulator."
        )
    return simulator


def check_gradients(gradients: Float[np.ndarray, "... d"]) -> None:
    """Raise an error if all gradients of a simulator that was declared differentiable are zero."""
    if not gradients.any():
        raise InputError(
            "`simulator` was declared differentiable, but its derivative with respect to theta is zero or not finite "
            "at every point tried. If it rounds or counts, pass JaxSimulator(..., differentiable=False)."
        )
