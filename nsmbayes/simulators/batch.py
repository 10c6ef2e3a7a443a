"""Simulators that take many theta at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes.calls import InBatches
from nsmbayes.errors import InputError
from nsmbayes.simulators.base import Simulator, key_generators


class BatchSimulator(Simulator):
    """A simulator that takes many theta at once: `batch(rng, theta) -> x`, with theta (k, d_theta) and x (k, d_x).

    In a campaign, k is always `size`, and the first row of a call is a multiple of `size`. So the generator of a call
    gives each row the same random numbers however the work is divided. A call that fails is repeated row by row, with
    k = 1.

    Args:
        batch: the function.
        size: rows per call. It is part of the simulator's identity: another size gives other random numbers.

    Example:
        >>> import nsmbayes as nsm
        >>> simulator = nsm.BatchSimulator(lambda rng, theta: theta + rng.standard_normal(theta.shape), size=100)
        >>> simulator.caller().numbered(0, 200, np.zeros((100, 2))).shape
        (100, 2)
    """

    def __init__(
        self, batch: Callable[[np.random.Generator, Float[np.ndarray, "k d_theta"]], Any], *, size: int = 1000
    ):
        if not callable(batch):
            raise InputError(f"`batch` must be a function of a NumPy generator and of theta; got {batch!r}.")
        self._caller = InBatches(batch, checks.integer(size, "size", at_least=1))

    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """One observation per row, each by a separate call; row i depends only on `keys[i]` and `theta[i]`."""
        drawn = [self._caller.called(rng, row[None]) for rng, row in zip(key_generators(keys), theta, strict=True)]
        return np.concatenate(drawn)

    def caller(self) -> InBatches:
        """An object that simulates numbered rows."""
        return self._caller

    def identity(self) -> tuple[Any, ...]:
        """The function and the size of its calls, for the fingerprint of a campaign."""
        return (self._caller.batch, self._caller.calls_of)
