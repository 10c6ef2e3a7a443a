"""Callers for functions of one theta or of many."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes.calls.generators import call_generators, row_generators
from nsmbayes.errors import InputError


class OneByOne:
    """A caller for a function `one(rng, theta) -> x` of one theta."""

    calls_of = 1

    def __init__(self, one: Callable[[np.random.Generator, Float[np.ndarray, " d_theta"]], Any]):
        self.one = one

    def numbered(self, seed: int, first: int, theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """The observation of row `first`."""
        return np.asarray(self.one(row_generators(seed).at(first), theta[0]), dtype=np.float64).reshape(1, -1)


class InBatches:
    """A caller for a function `batch(rng, theta) -> x` of `calls_of` theta, or of one theta after a call failed."""

    def __init__(self, batch: Callable[[np.random.Generator, Float[np.ndarray, "k d_theta"]], Any], calls_of: int):
        self.batch, self.calls_of = batch, calls_of

    def numbered(self, seed: int, first: int, theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """Observations of consecutive rows from `first` on, by one call."""
        generators = call_generators(seed) if len(theta) == self.calls_of else row_generators(seed)
        return self.called(generators.at(first), theta)

    def called(self, rng: np.random.Generator, theta: Float[np.ndarray, "k d_theta"]) -> Float[np.ndarray, "k d_x"]:
        """The result of the function; an `InputError` if it has a wrong shape."""
        x = np.asarray(self.batch(rng, theta), dtype=np.float64)
        if x.ndim == 1:
            x = x[:, None]
        if x.ndim != 2 or len(x) != len(theta):
            raise InputError(
                f"`batch` must return one row per row of theta, shape ({len(theta)}, d_x); got shape {x.shape}."
            )
        return x
