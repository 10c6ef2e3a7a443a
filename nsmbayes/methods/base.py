"""Base classes of all methods: prior, parameter and column names, appended simulations, simulation budget."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.columns import Names, check_names, column_names, named_matrix, warn_unnamed
from nsmbayes._internal.precision import Sheltered
from nsmbayes.diagnostics import Reach, judge, reach
from nsmbayes.errors import BudgetError, InputError
from nsmbayes.posteriors import Posterior, Provenance
from nsmbayes.priors import as_prior
from nsmbayes.robustness import certify
from nsmbayes.training import Stopped, TrainingHistory


class Method(Sheltered, ABC):
    """Base class of all methods: given a prior, a method builds a posterior from observations."""

    name: str  # on the command line and in saved models
    label: str  # in text for readers
    amortised: str  # "fully", "partially" or "no"
    history: TrainingHistory | None = None
    x_names: Names = None
    """Names of the columns of x, given by the user or taken from the simulations; None if there are none."""
    interrupted: bool = False
    """Whether Ctrl-C ended the training of the network; posteriors then report it."""

    def __init__(self, prior: Any, dim: int, parameter_names: tuple[str, ...] | None, budget: int | None = None):
        self.prior = as_prior(prior)
        self.simulations_used = 0
        self.dropped = 0.0
        """The fraction of the simulations that failed and were dropped."""
        self.budget = None if budget is None else checks.integer(budget, "budget", at_least=1)
        """Maximum number of simulator calls, appended or made by the method; None for no limit."""
        if parameter_names is None:
            parameter_names = getattr(self.prior, "parameter_names", None)
        self._has_names = parameter_names is not None
        if parameter_names is None:
            parameter_names = tuple(f"theta_{i + 1}" for i in range(dim))
        self.parameter_names = check_names(parameter_names, "parameter_names", dim)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.parameter_names)

    @abstractmethod
    def train(self, seed: int = 0, *, progress: bool = True) -> Self:
        """Do the work that does not need the observations, such as training a network."""

    @abstractmethod
    def build_posterior(self, x: Any, *, seed: int = 0) -> Posterior:
        """The posterior given observations (n, d_x)."""

    def check(self, x: Any) -> Reach:
        """Check how far the observations lie from all simulations; call it before building a posterior.

        The result summarises the check in a few words (`.verdict`) and in one or two sentences (`.explain()`), and has
        numbers for each row and column.
        """
        simulated, bounds = self._reference()
        x = named_matrix(x, "x", self.x_names, width=simulated.shape[1], width_is="columns, like the simulations")
        return reach(x, simulated, self.x_names, bounds=bounds)

    def _reference(self) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "2 d_x"] | None]:
        """Return (simulations, None), or draws of the surrogate over the prior and the range of the simulations."""
        raise InputError(
            f"{self.label} has no simulations to compare with. Simulate from the prior, and pass them to "
            "nsmbayes.diagnostics.reach(x, simulated)."
        )

    def _provenance(self) -> Provenance:
        about = (self.x_names, self.interrupted, self.dropped)
        return Provenance(self.name, self.label, self.parameter_names, certify, *about, judge)

    def _record(self, history: TrainingHistory) -> None:
        self.history, self.interrupted = history, history.stopped == Stopped.INTERRUPTED

    def _check_budget(self, calls: int) -> int:
        """Return the total number of simulator calls after `calls` more; raise `BudgetError` above the budget."""
        used = self.simulations_used + calls
        if self.budget is not None and used > self.budget:
            raise BudgetError(
                f"{calls:,} more simulations would make {used:,}, and the budget is {self.budget:,}. Raise `budget`, "
                "or ask for fewer."
            )
        return used

    def _charge(self, calls: int) -> None:
        """Count simulator calls before they are made; raise `BudgetError` above the budget."""
        self.simulations_used = self._check_budget(calls)


class TrainedMethod(Method):
    """A method trained on simulations: call `append_simulations`, `train`, then `build_posterior` for any data set."""

    def __init__(self, prior: Any, dim: int, parameter_names: tuple[str, ...] | None, budget: int | None = None):
        super().__init__(prior, dim, parameter_names, budget)
        self._simulations: list[tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m ..."]]] = []

    def append_simulations(self, theta: Any, x: Any) -> Self:
        """Add simulations: parameters (m, d_theta) and simulator outputs (m, d_x), row by row.

        If `x` is a DataFrame, its column names are stored, and the columns of observations are later reordered by name.
        If `theta` is a DataFrame, its columns are reordered by `parameter_names`; without them it names the parameters.
        """
        known = self.parameter_names if self._has_names and column_names(theta) is not None else None
        like = "columns, one per parameter of the prior"
        found = column_names(theta)
        theta = named_matrix(theta, "theta", known, width=self.dim, width_is=like, of="`parameter_names`")
        if not self._has_names and found is not None:
            self.parameter_names, self._has_names = check_names(found, "columns of `theta`", self.dim), True
        names = self._names_with(column_names(x))
        width = self._simulations[0][1].shape[1] if self._simulations else None
        if width is None and names is not None:
            width = len(names)
        x = named_matrix(x, "x", names, width=width, width_is="columns, like the simulations before")
        if len(theta) != len(x):
            raise InputError(
                f"`theta` and `x` must have the same number of rows; got {len(theta)} and {len(x)}. Row i of x is the "
                "simulation at row i of theta."
            )
        self._charge(len(x))
        self._simulations.append((theta, x))
        self.x_names = names
        return self

    def _names_with(self, found: Names) -> Names:
        """Return the column names after simulations with the names `found` (or None) are appended."""
        if self.x_names is not None or found is None:
            return self.x_names
        names = check_names(found, "x_names")
        if self._simulations:
            warn_unnamed("x of the simulations before", names, "those that follow")
        return names

    def _reference(self) -> tuple[Float[np.ndarray, "m d_x"], Float[np.ndarray, "2 d_x"] | None]:
        x = self._all_simulations()[1]
        return x.reshape(-1, x.shape[-1]), None

    def _all_simulations(self) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m ..."]]:
        if not self._simulations:
            raise InputError("There are no simulations to train on. Call append_simulations(theta, x) first.")
        theta, x = zip(*self._simulations, strict=True)
        return np.concatenate(theta), np.concatenate(x)
