"""What every posterior that is known by its draws can answer."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes.posteriors.certified import Certified
from nsmbayes.posteriors.empirical import Empirical
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.priors import GaussianPrior, UnconstrainedPrior, as_gaussian
from nsmbayes.samplers import Draws

MAX_R_HAT = 1.05
MIN_ESS = 100.0
_PRIOR_DRAWS = 4000


class DrawnPosterior(Certified):
    """Draws from a posterior, the data they came from, and how far to trust them.

    Built by the `build_posterior` of a method.
    """

    def __init__(
        self,
        method: tuple[str, str],
        support: UnconstrainedPrior,
        draws: Float[np.ndarray, "chains draws d"],
        x: Float[np.ndarray, "n d_x"],
        *,
        parameter_names: tuple[str, ...],
        beta: float = 1.0,
        result: Draws | None = None,
        calibration: Calibration | None = None,
    ):
        self.method, self.label = method
        self.draws, self.x, self.parameter_names = draws, x, parameter_names
        self.beta, self.result, self.calibration = beta, result, calibration
        self._support = support
        self._empirical = Empirical(draws.reshape(-1, draws.shape[-1]))
        self.mean, self.covariance, self.stds = (
            self._empirical.mean,
            self._empirical.covariance,
            self._empirical.stds,
        )

    @functools.cached_property
    def prior(self) -> GaussianPrior | Empirical:
        """The prior, for tables and plots: itself if it is Gaussian, else by its draws."""
        try:
            return as_gaussian(self._support.distribution)
        except InputError:
            return Empirical(draw_prior(self._support, _PRIOR_DRAWS))

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weight of each observation, between 0 (ignored) and 1 (trusted): 1 for methods that weigh none."""
        return np.ones(self.n)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.draws.shape[-1]

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.x)

    @property
    def converged(self) -> bool:
        """Whether the chains agree (R-hat at most 1.05) and are worth at least 100 independent draws.

        True for draws that are independent by construction.
        """
        if self.result is None:
            return True
        return bool(self.result.r_hat.max() <= MAX_R_HAT and self.result.ess.min() >= MIN_ESS)

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid, by a kernel density estimate of the draws."""
        return self._empirical.marginal(j, grid)

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j that holds the fraction `level` of the draws."""
        return self._empirical.interval(j, level)

    def sample(self, shape: tuple[int, ...] | int, seed: int = 0) -> Float[np.ndarray, "... d"]:
        """Draws of shape `shape + (d,)`: chosen among the stored ones, without repetition while there are enough."""
        shape = _checks.shape(shape, "shape")
        flat = self._empirical.draws
        total, wanted = len(flat), int(np.prod(shape))
        rng = np.random.default_rng(_checks.integer(seed, "seed"))
        rows = rng.permutation(total)[:wanted] if wanted <= total else rng.integers(total, size=wanted)
        return flat[rows].reshape(*shape, self.dim)

    def contains(self, theta: Any, level: float = 0.95) -> Bool[np.ndarray, "..."]:
        """Whether theta lies in the ellipsoid around the mean that holds the fraction `level` of the draws."""
        theta, level = _checks.finite_array(theta, "theta"), _checks.fraction(level, "level")
        if theta.ndim == 0 or theta.shape[-1] != self.dim:
            raise InputError(f"`theta` must have shape (..., {self.dim}); got {theta.shape}.")
        inside = [self._empirical.covers(row, level) for row in theta.reshape(-1, self.dim)]
        return np.asarray(inside).reshape(theta.shape[:-1])

    def mse(self, theta_true: Any) -> float:
        """E |theta - theta_true|^2 over the draws."""
        return self._empirical.mse(_checks.vector(theta_true, "theta_true", length=self.dim))

    def summary(self) -> str:
        """A table of the marginals, the state of the chains, and a line on the observations, to print."""
        chains = self.result is not None
        lines = [
            f"{self.label} posterior from {self.n} observations, beta = {self.beta:.4g}",
            f"{'parameter':<12}{'mean':>10}{'sd':>10}{'2.5 %':>10}{'97.5 %':>10}" + f"{'R-hat':>8}{'ESS':>8}" * chains,
        ]
        for j, name in enumerate(self.parameter_names):
            low, high = self.interval(j)
            lines.append(f"{name:<12}{self.mean[j]:>10.3f}{self.stds[j]:>10.3f}{low:>10.3f}{high:>10.3f}")
            if self.result is not None:
                lines[-1] += f"{self.result.r_hat[j]:>8.3f}{self.result.ess[j]:>8.0f}"
        lines.append(self._about_observations())
        lines.append(self.certificate.wrapped())
        if self.result is not None and self.result.note:
            lines.append(self.result.note)
        if not self.converged:
            lines.append("NOT CONVERGED: the chains disagree or are too short. Sample longer or from more chains.")
        if self.result is not None and self.result.divergences.sum():
            lines.append(f"{self.result.divergences.sum()} divergent transitions.")
        if self.calibration is not None:
            lines.append(self.calibration.wrapped())
        return "\n".join(lines)

    def _about_observations(self) -> str:
        return "All observations count alike."

    def to_arviz(self) -> Any:
        """The draws as an ArviZ InferenceData. Needs the extra `nsmbayes[arviz]`."""
        from nsmbayes.interop.arviz import inference_data

        return inference_data(self.draws, self.parameter_names, self.x, self.weights)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self.label}, mean={self.mean}, sd={self.stds}, n={self.n}, beta={self.beta:.4g})"


@double_precision
def draw_prior(prior: UnconstrainedPrior, count: int) -> Float[np.ndarray, "count d"]:
    """Draws of theta in the user's space, always the same."""
    return np.asarray(prior.distribution.sample(jax.random.key(0), (count,)))


@double_precision
def constrain(prior: UnconstrainedPrior, positions: Float[np.ndarray, "chains draws d"]) -> np.ndarray:
    """Unconstrained positions as parameters in the user's space."""
    return np.asarray(jax.jit(jax.vmap(jax.vmap(prior.constrain)))(positions))
