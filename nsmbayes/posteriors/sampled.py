"""Posteriors represented by draws."""

import functools
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from nsmbayes._internal import checks
from nsmbayes.calibration import CalibrationResult, SurrogateCheck
from nsmbayes.errors import InputError
from nsmbayes.posteriors.alternatives import of_draws
from nsmbayes.posteriors.base import Posterior, Provenance
from nsmbayes.posteriors.empirical import Empirical
from nsmbayes.posteriors.sensitivity import Variations
from nsmbayes.priors import (
    GaussianPrior,
    UnconstrainedPrior,
    as_gaussian,
    draw_prior,
)
from nsmbayes.samplers import (
    Draws,
    has_converged,
)

_PRIOR_DRAWS = 4000
_VARIED_DRAWS = 1000  # draws that are reweighted


class SampledPosterior(Posterior):
    """Draws from a posterior, with its data and convergence diagnostics.

    Built by the `build_posterior` of a method.
    """

    def __init__(
        self,
        provenance: Provenance,
        support: UnconstrainedPrior | None,
        draws: Float[np.ndarray, "chains draws d"],
        x: Float[np.ndarray, "n d_x"],
        *,
        beta: float = 1.0,
        result: Draws | None = None,
        calibration: CalibrationResult | None = None,
        surrogate_check: SurrogateCheck | None = None,
    ):
        super().__init__(provenance, beta, calibration, surrogate_check)
        self.draws, self.result, self._x, self._support = draws, result, x, support
        self._empirical = Empirical(draws.reshape(-1, draws.shape[-1]))
        self.mean, self.covariance = self._empirical.mean, self._empirical.covariance

    @property
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations."""
        return self._x

    @property
    def support(self) -> UnconstrainedPrior:
        """The prior and its bijection to R^d."""
        if self._support is None:
            raise InputError("A stored posterior has no prior density: build the posterior again with its method.")
        return self._support

    @functools.cached_property
    def prior(self) -> GaussianPrior | Empirical:
        """The prior, for tables and plots: as a `GaussianPrior` if it is Gaussian, otherwise by its draws."""
        if self._support is None:
            raise InputError("This posterior does not know its prior.")
        try:
            return as_gaussian(self._support.distribution)
        except InputError:
            return Empirical(draw_prior(self._support, _PRIOR_DRAWS))

    @property
    def converged(self) -> bool:
        """Whether R-hat is at most 1.05 and the effective sample size is at least 100.

        True for draws that are independent by construction.
        """
        return self.result is None or has_converged(self.result)

    def sample(self, shape: tuple[int, ...] | int, seed: int = 0) -> Float[np.ndarray, "... d"]:
        """Choose draws of shape `shape + (d,)` from the stored draws, without repetition if there are enough."""
        shape = checks.shape(shape, "shape")
        drawn = self._empirical.sample(int(np.prod(shape)), checks.integer(seed, "seed"))
        return drawn.reshape(*shape, self.dim)

    def chains(self, draws: int, chains: int, seed: int) -> Float[np.ndarray, "chains draws d"]:
        """The draws of the sampler, chain by chain."""
        del draws, chains, seed
        return self.draws

    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Not available for a posterior that is known by its draws alone: raises `InputError`."""
        raise InputError(f"The posterior of {self.label} has only draws: there is no density to evaluate.")

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid, by a kernel density estimate of the draws."""
        return self._empirical.marginal(j, grid)

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j that contains the fraction `level` of the draws."""
        return self._empirical.interval(j, level)

    def contains(self, theta: Any, level: float = 0.95) -> Bool[np.ndarray, "..."]:
        """Whether theta lies in the ellipsoid around the mean that contains the fraction `level` of the draws."""
        theta, level = self._thetas(theta), checks.fraction(level, "level")
        inside = [self._empirical.covers(row, level) for row in theta.reshape(-1, self.dim)]
        return np.asarray(inside).reshape(theta.shape[:-1])

    def mse(self, theta_true: Any) -> float:
        """E |theta - theta_true|^2 over the draws."""
        return self._empirical.mse(checks.vector(theta_true, "theta_true", length=self.dim))

    def _variations(self, seed: int) -> Variations:
        del seed
        return Variations(self._empirical.draws, of_draws(self.support, self._empirical.draws))

    def _extra(self) -> dict[str, Float[np.ndarray, " d"]]:
        return {} if self.result is None else {"R-hat": self.result.r_hat, "ESS": self.result.ess_bulk}

    def _more_columns(self, j: int | None = None) -> str:
        if self.result is None:
            return ""
        if j is None:
            return f"{'R-hat':>8}{'ESS':>8}"
        return f"{self.result.r_hat[j]:>8.3f}{self.result.ess_bulk[j]:>8.0f}"

    def _about_observations(self) -> str:
        return "All observations count alike."

    def _notes(self) -> list[str]:
        notes = []
        if self.result is not None and self.result.note:
            notes.append(self.result.note)
        if not self.converged:
            notes.append("NOT CONVERGED: the chains disagree or are too short. Sample longer or from more chains.")
        if self.result is not None and self.result.divergences.sum():
            notes.append(f"{self.result.divergences.sum()} divergent transitions.")
        return notes
