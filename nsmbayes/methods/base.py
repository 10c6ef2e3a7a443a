"""What every method shares: the verbs that users of sbi already type, and the simulations it was given."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.training import TrainingHistory, TrainingSettings
from nsmbayes.weights import Weight


class NotTrainedError(RuntimeError):
    """A posterior was asked of a method that has not been trained."""


class Method(ABC):
    """A way from simulations and observations to a posterior.

    `append_simulations`, then `train`, then `build_posterior` as often as there are data sets.
    """

    name: str  # on the command line and in saved models
    amortised: str  # "fully", "partially" or "no"
    history: TrainingHistory | None = None

    def __init__(self, dim: int, parameter_names: tuple[str, ...] | None):
        self._dim = dim
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
        self._simulations.append((theta, x))
        return self

    def _all_simulations(self) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        if not self._simulations:
            raise InputError("There are no simulations to train on. Call append_simulations(theta, x) first.")
        theta, x = zip(*self._simulations, strict=True)
        return np.concatenate(theta), np.concatenate(x)

    @abstractmethod
    def train(self, seed: int = 0, *, progress: bool = True) -> Self:
        """Fit the surrogate to the simulations."""

    @abstractmethod
    def build_posterior(self, x: Any, *, seed: int = 0) -> Any:
        """The posterior given observations (n, d_x)."""


def as_weight(weight: Any) -> Weight:
    """`weight`, if it is one."""
    return _checks.instance(weight, "weight", Weight, "nsmbayes.IMQ(zeta=2.0)")


def as_settings(settings: Any, default: TrainingSettings) -> TrainingSettings:
    """`settings`, or the default for None."""
    if settings is None:
        return default
    return _checks.instance(settings, "settings", TrainingSettings, "nsmbayes.TrainingSettings(max_epochs=100)")
