"""The base class of methods that are trained on whole data sets: simulations of shape (m, n, d_x)."""

from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.methods.base import TrainedMethod
from nsmbayes.priors import unconstrained
from nsmbayes.surrogates import Standardiser, fit_standardiser
from nsmbayes.surrogates.scaling import KINDS


class SetMethod(TrainedMethod):
    """A method trained on simulated data sets with the same number of observations as the observed data set.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        scaling: scaling of x for the networks: "zscore" as in the paper, "robust", "robust-asinh" or "none".
        budget: maximum number of simulations that can be appended.
        parameter_names: names for tables and plots.
    """

    def __init__(
        self,
        prior: Any,
        *,
        scaling: str = "zscore",
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        self.support = unconstrained(prior)
        super().__init__(prior, self.support.dim, parameter_names, budget)
        self.scaling = checks.choice(scaling, "scaling", KINDS)

    def append_simulations(self, theta: Any, x: Any) -> Self:
        """Add simulated data sets: parameters (m, d_theta), and n observations at each of them, (m, n, d_x).

        `nsmbayes.simulate_sets` simulates them. They count as m n calls of the simulator.
        """
        theta = checks.matrix(theta, "theta", width=self.dim, width_is="columns, one per parameter of the prior")
        x = checks.finite_array(x, "x")
        known = self._simulations[0][1].shape[1:] if self._simulations else None
        if x.ndim != 3 or (known and x.shape[1:] != known):
            expected = f"(m, {known[0]}, {known[1]})" if known else "(m, n, d_x)"
            raise InputError(
                f"`x` must have shape {expected}, a data set of n observations for each theta; got shape {x.shape}. "
                "nsmbayes.simulate_sets(prior, simulator, m=..., n=..., seed=...) makes such data sets."
            )
        if len(theta) != len(x):
            raise InputError(f"`theta` and `x` must have the same number of rows; got {len(theta)} and {len(x)}.")
        self._charge(x.shape[0] * x.shape[1])
        self._simulations.append((theta, x))
        return self

    def _scale_x(self) -> Standardiser:
        _, x = self._all_simulations()
        return fit_standardiser(x.reshape(-1, x.shape[-1]), self.scaling, "x")

    def _observations(self, x: Any) -> Float[np.ndarray, "n d_x"]:
        n, d_x = self._all_simulations()[1].shape[1:]
        x = checks.matrix(x, "x", width=d_x, width_is="columns, like the simulations")
        if len(x) != n:
            raise InputError(
                f"`x` has {len(x)} observations, but the method was trained on data sets of {n}. Simulate data sets of "
                f"{len(x)} observations."
            )
        return x
