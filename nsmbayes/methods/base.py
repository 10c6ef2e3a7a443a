"""What every method shares: the verbs that users of sbi already type, and the simulations it was given."""

import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.simulators import BudgetError
from nsmbayes.training import TrainingHistory, TrainingSettings
from nsmbayes.weights import Weight

_UNSEEN = 0.05  # share of the prior outside the range of the simulations from which on a user should know


class NotTrainedError(RuntimeError):
    """A posterior was asked of a method that has not been trained."""


class Method(ABC):
    """A way from simulations and observations to a posterior.

    `append_simulations`, then `train`, then `build_posterior` as often as there are data sets.
    """

    name: str  # on the command line and in saved models
    amortised: str  # "fully", "partially" or "no"
    history: TrainingHistory | None = None
    budget: int | None = None
    """The most simulator calls the method may use, given to it or made by it; None for no limit."""

    def __init__(self, dim: int, parameter_names: tuple[str, ...] | None, lattice: Any = None):
        self._dim = dim
        self.simulations_used = 0
        self.lattice = None if lattice is None else tuple(_steps(lattice).tolist())
        if parameter_names is None:
            parameter_names = tuple(f"theta_{i + 1}" for i in range(dim))
        _checks.instance(parameter_names, "parameter_names", tuple | list, "('alpha', 'beta')")
        self.parameter_names = tuple(parameter_names)
        strings = all(isinstance(name, str) for name in self.parameter_names)
        if len(self.parameter_names) != dim or not strings or len(set(self.parameter_names)) != dim:
            raise InputError(f"`parameter_names` must be {dim} different strings; got {self.parameter_names!r}.")
        self._simulations: list[tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]] = []

    def append_simulations(self, theta: Any, x: Any) -> Self:
        """Add simulations: parameters (m, d_theta) and what the simulator made of them (m, d_x), row by row."""
        theta = _checks.matrix(theta, "theta", width=self._dim, width_is="columns, one a parameter of the prior")
        width = self._simulations[0][1].shape[1] if self._simulations else None
        x = _checks.matrix(x, "x", width=width, width_is="columns, like the simulations before")
        if len(theta) != len(x):
            raise InputError(
                f"`theta` and `x` must have the same number of rows; got {len(theta)} and {len(x)}. Row i of x is the "
                "simulation at row i of theta."
            )
        self._spend(len(x))
        self._simulations.append((theta, x))
        return self

    def _spend(self, calls: int) -> None:
        """Count calls of the simulator, before they are made; raise `BudgetError` if they are too many."""
        used = self.simulations_used + calls
        if self.budget is not None and used > self.budget:
            raise BudgetError(
                f"{calls:,} more simulations would make {used:,}, and the budget is {self.budget:,}. Raise `budget`, "
                "or ask for fewer."
            )
        self.simulations_used = used

    def _all_simulations(self) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        if not self._simulations:
            raise InputError("There are no simulations to train on. Call append_simulations(theta, x) first.")
        theta, x = zip(*self._simulations, strict=True)
        return np.concatenate(theta), np.concatenate(x)

    def _dequantise(self, x: Float[np.ndarray, "m d_x"], *stream: int) -> Float[np.ndarray, "m d_x"]:
        """`x` with uniform noise of one lattice step, so that it has a density."""
        if self.lattice is None:
            return x
        if len(self.lattice) != x.shape[1]:
            raise InputError(
                f"`lattice` must have {x.shape[1]} step{'s' * (x.shape[1] > 1)}, one a column of x (0 for a continuous "
                f"one); got {len(self.lattice)}."
            )
        return x + np.asarray(self.lattice) * np.random.default_rng(stream).uniform(-0.5, 0.5, x.shape)

    @abstractmethod
    def train(self, seed: int = 0, *, progress: bool = True) -> Self:
        """Fit the surrogate to the simulations."""

    @abstractmethod
    def build_posterior(self, x: Any, *, seed: int = 0) -> Any:
        """The posterior given observations (n, d_x)."""


def _steps(lattice: Any) -> Float[np.ndarray, " d_x"]:
    steps = _checks.vector(lattice, "lattice")
    if (steps < 0).any():
        raise InputError(f"`lattice` must hold steps of at least 0; got {steps.tolist()}.")
    return steps


def warn_of_unseen_parameters(
    draws: Float[np.ndarray, "k d_theta"], theta: Float[np.ndarray, "m d_theta"], names: tuple[str, ...]
) -> None:
    """Warn if the prior reaches where nothing was simulated: `draws` of the prior outside the range of `theta`."""
    outside = ((draws < theta.min(axis=0)) | (draws > theta.max(axis=0))).mean(axis=0)
    worst = int(outside.argmax())
    if outside[worst] > _UNSEEN:
        warnings.warn(
            f"{outside[worst]:.0%} of the prior lies where {names[worst]} was never simulated (the simulations reach "
            f"from {theta[:, worst].min():.4g} to {theta[:, worst].max():.4g}): the surrogate extrapolates there. "
            "Simulate from the prior, or from something wider.",
            stacklevel=3,
        )


def as_weight(weight: Any) -> Weight:
    """`weight`, if it is one."""
    return _checks.instance(weight, "weight", Weight, "nsmbayes.IMQ(zeta=2.0)")


def as_settings(settings: Any, default: TrainingSettings) -> TrainingSettings:
    """`settings`, or the default for None."""
    if settings is None:
        return default
    return _checks.instance(settings, "settings", TrainingSettings, "nsmbayes.TrainingSettings(max_epochs=100)")
