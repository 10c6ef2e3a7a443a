"""The NSM-Bayes-conj posterior (Proposition 1): Gaussian, in closed form, from sums over observations."""

import functools
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from nsmbayes._internal import checks
from nsmbayes.calibration import UNCHECKED, CalibrationResult, SurrogateCheck, SurrogateTest
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import diagonalise, direction_rates, gaussian_posterior
from nsmbayes.losses.statistics import DataStatistics
from nsmbayes.posteriors.alternatives import of_conjugate
from nsmbayes.posteriors.base import Posterior, Provenance
from nsmbayes.posteriors.influence import Influence
from nsmbayes.posteriors.sensitivity import Variations
from nsmbayes.priors import GaussianPrior, as_gaussian, same_dimension
from nsmbayes.surrogates import Density
from nsmbayes.suspects import BY_DISTANCE, Suspects
from nsmbayes.weights import Weighting

_FINEST = 0.1  # in prior standard deviations: used for methods without a resolution, equal to the default


class ConjugatePosterior(Posterior):
    """A Gaussian generalised posterior N(mean, covariance) with the statistics of its data.

    Built by `NSMBayesConj.build_posterior`. It is immutable: `update`, `with_beta` and `with_prior` return new
    posteriors.
    """

    normalised = True

    def __init__(
        self,
        provenance: Provenance,
        prior: GaussianPrior,
        statistics: DataStatistics,
        beta: float,
        *,
        resolution: float = 0.0,
        calibration: CalibrationResult | None = None,
        suspects: Suspects | None = None,
        by_distance: bool = False,
        surrogate_check: SurrogateCheck | None = None,
    ):
        super().__init__(provenance, beta, calibration, surrogate_check)
        self.prior: GaussianPrior = prior
        self.statistics, self.resolution = statistics, resolution
        self.suspects, self._by_distance = suspects, by_distance
        self.mean, self.precision = gaussian_posterior(prior, statistics.total, beta, resolution)
        self.covariance: Float[np.ndarray, "d d"] = np.linalg.inv(self.precision)

    @property
    def n(self) -> int:
        """Number of observations."""
        return self.statistics.n

    @property
    def converged(self) -> bool:
        """Always True: the posterior is in closed form."""
        return True

    @property
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations."""
        return self.statistics.x

    @property
    def density(self) -> Density | None:
        """The density that was used to find excess observations, or None; the family itself has no density."""
        return None if self.suspects is None else self.suspects.density

    @property
    def weighting(self) -> Weighting:
        """The weighting of observations by their distance."""
        return self.statistics.weighting

    @property
    def noisy_x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations in the loss: with noise of one grid step if the method has `grid_steps`."""
        return self.statistics.dequantised

    def losses_at(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k n"]:
        """The loss of each observation at many parameters."""
        parts = [
            np.einsum("ki,nij,kj->kn", theta, A, theta) + 2 * theta @ B.T + C for A, B, C in self.statistics.each()
        ]
        return np.concatenate(parts, axis=1)

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weight of each observation, from 0 (ignored) to 1: weight by distance times excess factor."""
        return self.weight_at(self.x) * np.concatenate(self.statistics.multiples)

    def weight_at(self, x: Any) -> Float[np.ndarray, " k"]:
        """The weight by distance that observations with other values would have."""
        return self.statistics.weighting.at(self.points(x))

    @property
    def location_scatter(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]:
        """The robust location and scatter of the weight."""
        centre = self.statistics.weighting.centre
        return np.asarray(centre.location), np.asarray(centre.scatter)

    @property
    def learning_rates(self) -> Float[np.ndarray, " d"]:
        """The learning rate in each of d directions: beta, or less in directions where `resolution` is the limit."""
        return direction_rates(self.beta, diagonalise(self.prior, self.statistics.total)[1], self.resolution)

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid."""
        return stats.norm.pdf(grid, self.mean[j], self.std[j])

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j with probability `level`."""
        low, high = stats.norm.interval(level, self.mean[j], self.std[j])
        return float(low), float(high)

    def sample(self, shape: tuple[int, ...] | int, seed: int = 0) -> Float[np.ndarray, "... d"]:
        """Return independent draws of shape `shape + (d,)`."""
        shape = checks.shape(shape, "shape")
        rng = np.random.default_rng(checks.integer(seed, "seed"))
        return self.mean + rng.standard_normal((*shape, self.dim)) @ np.linalg.cholesky(self.covariance).T

    def chains(self, draws: int, chains: int, seed: int) -> Float[np.ndarray, "chains draws d"]:
        """Return independent draws, arranged in chains."""
        return self.sample((chains, draws), seed=seed)

    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Normalised log density at points of shape (..., d)."""
        residual = self._thetas(theta) - self.mean
        log_det = np.linalg.slogdet(self.precision)[1] - self.dim * np.log(2 * np.pi)
        return 0.5 * (log_det - np.einsum("...i,ij,...j", residual, self.precision, residual))

    def loss(self, theta: Any) -> Float[np.ndarray, "..."]:
        """The average loss L_NSM(theta) over the observations, at points of shape (..., d)."""
        theta = self._thetas(theta)
        A, B, C = self.statistics.average
        return np.einsum("...i,ij,...j", theta, A, theta) + 2 * theta @ B + C

    def contains(self, theta: Any, level: float = 0.95) -> Bool[np.ndarray, "..."]:
        """Whether points of shape (..., d) lie in the central region of probability `level`."""
        residual = self._thetas(theta) - self.mean
        distance = np.einsum("...i,ij,...j", residual, self.precision, residual)
        return distance <= stats.chi2.ppf(checks.fraction(level, "level"), self.dim)

    def mse(self, theta_true: Any) -> float:
        """E |theta - theta_true|^2 under the posterior, in closed form."""
        residual = checks.vector(theta_true, "theta_true", length=self.dim) - self.mean
        return float(residual @ residual + np.trace(self.covariance))

    def leave_one_out(self) -> Influence:
        """KL(posterior || posterior without observation i) for every i, in closed form; weights are unchanged."""
        kl = np.concatenate([self.kl_to(*(-a for a in loss)) for loss in self.statistics.each()])
        return Influence(kl, np.ones(self.n, bool))

    def kl_to(self, A: Any, B: Any, C: Any = 0.0) -> Float[np.ndarray, " k"]:
        """KL(posterior || posterior with theta' A theta + 2 theta' B + C added to the total loss), vectorised."""
        total = self.statistics.total
        total = Quadratic(total.A + A, total.B + B, total.C + C)
        mean, precision = gaussian_posterior(self.prior, total, self.beta, self.resolution)
        step, change = mean - self.mean, precision @ self.covariance
        trace, log_det = np.trace(change, axis1=1, axis2=2), np.linalg.slogdet(change)[1]
        kl = 0.5 * (trace - self.dim - log_det + np.einsum("ni,nij,nj->n", step, precision, step))
        return np.maximum(kl, 0)  # rounding can give -1e-16 for observations without influence

    def update(self, x_new: Any, *, refit: bool = False) -> "ConjugatePosterior":
        """Return the posterior with additional observations: exact, without simulation or training, at the same beta.

        Location, scatter and coordinates of the weight are unchanged, and only the new observations are computed; they
        are weighted by distance. With `refit`, location and scatter are estimated again from all observations. Only
        `build_posterior` searches for excess observations.
        """
        x_new = self.points(x_new, "x_new", note=True)
        if refit:
            everything = np.concatenate([self.x, x_new])
            multiples = np.concatenate([*self.statistics.multiples, np.ones(len(x_new))])
            statistics = DataStatistics.of(self.statistics.recipe, everything, multiples=multiples)
        else:
            statistics = self.statistics.extended(x_new)
        suspects = None if self.suspects is None else self.suspects.extended(len(x_new))
        check = None if self.surrogate_check is None else self.surrogate_check.for_more(statistics.n)
        return self._replace(statistics=statistics, suspects=suspects, surrogate_check=check)

    def checked(self, test: SurrogateTest | None, *, lower: bool) -> "ConjugatePosterior":
        """Return the posterior with a check of the family on held-out simulations; `lower` lowers the learning rate."""
        if test is None:
            return self
        check = test.check(self.mean, self.covariance, self.n, self._response())
        if not lower:
            return self._replace(surrogate_check=check)
        wider = 1 + check.ratio
        resolution = min(1.0, self.resolution * np.sqrt(wider))  # the limit of variances increases by the same factor
        return self._replace(
            surrogate_check=check._replace(applied=True), beta=self.beta / wider, resolution=resolution
        )

    def _response(self) -> Float[np.ndarray, "d d"]:
        """Linear response of the mean to a term added to the gradient of the loss."""
        S, curvatures, U, _ = diagonalise(self.prior, self.statistics.total)
        rates = direction_rates(self.beta, curvatures, self.resolution)
        directions = S @ U
        return directions @ np.diag(rates / (1 + 2 * rates * curvatures)) @ directions.T

    def with_beta(self, beta: float, *, calibration: CalibrationResult | None = None) -> "ConjugatePosterior":
        """Return the posterior for another learning rate; `calibration` is stored as the origin of `beta`."""
        check = None if self.surrogate_check is None else self.surrogate_check._replace(applied=False)
        return self._replace(beta=checks.positive(beta, "beta"), calibration=calibration, surrogate_check=check)

    def with_prior(self, prior: Any) -> "ConjugatePosterior":
        """Return the posterior for another Gaussian prior, with the same sums and beta."""
        return self._replace(prior=same_dimension(as_gaussian(prior), self.dim))

    def _variations(self, seed: int) -> Variations:
        del seed
        return Variations(self.mean[None], of_conjugate(self, self._replace))

    def _notes(self) -> list[str]:
        said = [] if self.suspects is None else [self.suspects.describe()]
        said += [BY_DISTANCE] if self._by_distance else []
        return said + ([UNCHECKED] if self.surrogate_check is None else [])

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about this posterior; also if the data require more precision than the family can provide."""
        check = self.surrogate_check
        wider = 1 + check.ratio if check is not None and check.applied else 1.0
        beta, limit = self.beta * wider, self.resolution / np.sqrt(wider) or _FINEST  # before the check
        rates = direction_rates(beta, diagonalise(self.prior, self.statistics.total)[1], limit)
        found = super().warnings
        if not (narrow := int((rates < beta).sum())):
            return found
        lowered = "there the learning rate was lowered, but" if self.resolution else "and"
        return (
            *found,
            f"The {self.n:,} observations determine theta more precisely than NSM-Bayes-conj can: in {narrow} of "
            f"{self.dim} directions to less than {limit:g} prior standard deviations. Its family is linear in theta, "
            f"with an error that does not shrink with more data: {lowered} the posterior can be narrow and wrong. "
            "Compare with NSMBayes, or with the posterior of fewer observations.",
        )

    def _replace(self, **changes: Any) -> "ConjugatePosterior":
        fields = {
            "provenance": self.provenance,
            "prior": self.prior,
            "statistics": self.statistics,
            "beta": self.beta,
            "resolution": self.resolution,
            "calibration": self.calibration,
            "suspects": self.suspects,
            "by_distance": self._by_distance,
            "surrogate_check": self.surrogate_check,
        }
        return ConjugatePosterior(**(fields | changes))
