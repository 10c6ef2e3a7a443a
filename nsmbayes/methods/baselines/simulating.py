"""The base class of methods that call the simulator themselves, given the observations."""

from abc import abstractmethod
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.methods.base import Method
from nsmbayes.priors import unconstrained
from nsmbayes.simulators import as_simulator

_PRIOR_DRAWS = 10_000


class SimulatingMethod(Method):
    """A method that calls its simulator at parameters chosen from the observations, so it is not amortised.

    It cannot use existing simulations, and has no `append_simulations`.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task.
        budget: maximum number of simulations.
        parameter_names: names for tables and plots.
    """

    amortised = "no"

    def __init__(
        self,
        prior: Any,
        simulator: Any,
        *,
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        self.support = unconstrained(prior)
        super().__init__(prior, self.support.dim, parameter_names, budget)
        self.simulator = as_simulator(simulator)

    def train(self, seed: int = 0, *, progress: bool = True) -> Self:
        """Only check the arguments: training needs the observations and happens in `build_posterior`."""
        checks.integer(seed, "seed")
        checks.flag(progress, "progress")
        return self

    @abstractmethod
    def planned_simulations(self, n: int) -> int:
        """Number of simulator calls for one posterior of n observations."""

    @classmethod
    @abstractmethod
    def options_for_budget(cls, budget: int, n: int) -> dict[str, Any]:
        """Options so that one posterior of n observations fits into a budget; all others keep their defaults."""

    def _observations(self, x: Any) -> Float[np.ndarray, "n d_x"]:
        return checks.matrix(x, "x", min_rows=3)

    @double_precision
    def _prior_moments(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """The mean of the prior in the unconstrained space, and the Cholesky factor of its covariance."""
        draws = np.asarray(self.support.sample(jax.random.key(0), _PRIOR_DRAWS))
        return draws.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
