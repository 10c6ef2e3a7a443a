"""What methods share that call the simulator themselves, once they have seen the observations."""

from typing import Any, NoReturn, Self

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes.diagnostics import median_lengthscale
from nsmbayes.methods.base import Method
from nsmbayes.priors import unconstrained
from nsmbayes.simulators import as_simulator

_PRIOR_DRAWS = 10_000


class SimulatingMethod(Method):
    """A method with a simulator of its own: it simulates where the observations lead it, so nothing is amortised."""

    amortised = "no"
    label: str

    def __init__(self, prior: Any, simulator: Any, *, budget: int | None, parameter_names: tuple[str, ...] | None):
        self.prior, self.support = prior, unconstrained(prior)
        super().__init__(self.support.dim, parameter_names)
        self.simulator = as_simulator(simulator)
        self.budget = None if budget is None else _checks.integer(budget, "budget", at_least=1)

    def append_simulations(self, theta: Any, x: Any) -> NoReturn:
        """Not for this method: it cannot use simulations that were made before the observations were seen."""
        raise InputError(
            f"{self.label} calls its simulator itself and takes no simulations. Leave append_simulations out, and call "
            "build_posterior(x)."
        )

    def train(self, seed: int = 0, *, progress: bool = True) -> Self:
        """Nothing to train before the observations are there."""
        _checks.integer(seed, "seed")
        _checks.flag(progress, "progress")
        return self

    def _observations(self, x: Any) -> Float[np.ndarray, "n d_x"]:
        return _checks.matrix(x, "x", min_rows=3)

    def planned_simulations(self, n: int) -> int:
        """How often the simulator will be called for one posterior of n observations."""
        raise NotImplementedError

    @classmethod
    def within(cls, budget: int, n: int) -> dict[str, Any]:
        """Options with which one posterior of n observations fits into a budget, all else by default."""
        raise NotImplementedError

    @double_precision
    def _spread(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """Mean and a factor of the covariance of the prior in the unconstrained space."""
        draws = np.asarray(self.support.sample(jax.random.key(0), _PRIOR_DRAWS))
        return draws.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))

    def _centre(self) -> Float[np.ndarray, " d"]:
        return self._spread()[0]


def kernel_lengthscale(x: Float[np.ndarray, "n d_x"]) -> float:
    """The median heuristic on the observations; if more than half of all pairs are tied, an error."""
    scale = median_lengthscale(x)
    if scale == 0:
        raise InputError(
            "`x` has so many tied observations that the median of their distances is zero, and the kernel no width. "
            "Pass `lengthscale`."
        )
    return scale
