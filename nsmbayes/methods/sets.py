"""What methods share that are trained on whole data sets: simulations of shape (m, n, d_x)."""

from typing import Any, Self

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.methods.base import Method
from nsmbayes.priors import unconstrained
from nsmbayes.surrogates import Standardiser, fit_standardiser
from nsmbayes.surrogates.scaling import KINDS


class SetMethod(Method):
    """A method that learns from data sets of as many observations as will be observed."""

    def __init__(self, prior: Any, *, scaling: str, budget: int | None, parameter_names: tuple[str, ...] | None):
        self.prior, self.support = prior, unconstrained(prior)
        super().__init__(self.support.dim, parameter_names)
        self.scaling = _checks.choice(scaling, "scaling", KINDS)
        self.budget = None if budget is None else _checks.integer(budget, "budget", at_least=1)

    def append_simulations(self, theta: Any, x: Any) -> Self:
        """Add simulated data sets: parameters (m, d_theta), and n observations at each of them, (m, n, d_x).

        `nsmbayes.simulate_sets` makes them. They count as m n calls of the simulator.
        """
        theta = _checks.matrix(theta, "theta", width=self._dim, width_is="columns, one a parameter of the prior")
        x = _checks.finite_array(x, "x")
        expected = "(m, n, d_x)"
        if self._simulations:
            expected = f"(m, {self._simulations[0][1].shape[1]}, {self._simulations[0][1].shape[2]})"
        if x.ndim != 3 or (self._simulations and x.shape[1:] != self._simulations[0][1].shape[1:]):
            raise InputError(
                f"`x` must have shape {expected}, a data set of n observations for each theta; got shape {x.shape}. "
                "nsmbayes.simulate_sets(prior, simulator, m=..., n=..., seed=...) makes such data sets."
            )
        if len(theta) != len(x):
            raise InputError(f"`theta` and `x` must have the same number of rows; got {len(theta)} and {len(x)}.")
        self._spend(x.shape[0] * x.shape[1])
        self._simulations.append((theta, x))
        return self

    def _scale_x(self) -> Standardiser:
        _, x = self._all_simulations()
        return fit_standardiser(x.reshape(-1, x.shape[-1]), self.scaling, "x")

    def _observations(self, x: Any) -> Float[np.ndarray, "n d_x"]:
        n, d_x = self._all_simulations()[1].shape[1:]
        x = _checks.matrix(x, "x", width=d_x, width_is="columns, like the simulations")
        if len(x) != n:
            raise InputError(
                f"`x` has {len(x)} observations, but the method was trained on data sets of {n}. Simulate data sets of "
                f"{len(x)} observations."
            )
        return x
