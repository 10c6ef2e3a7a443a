"""The NSM-Bayes-conj posterior (Proposition 1): Gaussian, in closed form, from sums over observations."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.losses import Quadratic
from nsmbayes.posteriors.doubts import describe_doubts
from nsmbayes.posteriors.family_loss import DataSetLoss, LossRecipe, each_loss, total_loss, weights_of
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.priors import GaussianPrior, as_gaussian


def gaussian_posterior(
    prior: GaussianPrior, total: Quadratic, beta: Float[np.ndarray, "*k"] | float, resolution: float = 0.0
) -> tuple[Float[np.ndarray, "*k d"], Float[np.ndarray, "*k d d"]]:
    """Mean and precision of exp(-beta (theta' A theta + 2 theta' B)) N(prior), for a stack of data sets or of betas.

    With `resolution` beta is a matrix: see `direction_rates`.
    """
    k = 2 * np.asarray(beta)
    if resolution == 0:
        precision = prior.precision + k[..., None, None] * total.A
        shift = prior.precision @ prior.mean - k[..., None] * total.B
        return np.linalg.solve(precision, shift[..., None])[..., 0], precision
    S, λ, U, b = diagonalise(prior, total)
    k = 2 * direction_rates(np.asarray(beta)[..., None], λ, resolution)
    t = np.einsum("...ij,...j->...i", U, -k * b / (1 + k * λ))
    inverse = np.swapaxes(U, -1, -2) @ np.linalg.inv(S)
    precision = prior.precision + np.swapaxes(inverse, -1, -2) @ ((k * λ)[..., None] * inverse)
    return prior.mean + t @ S.T, precision


def diagonalise(
    prior: GaussianPrior, total: Quadratic
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "*k d"], Float[np.ndarray, "*k d d"], Float[np.ndarray, "*k d"]]:
    """S, λ, U, b with theta = prior mean + S U t, in which the prior is N(0, I) and the loss sum(λ t^2 + 2 b t)."""
    S = np.linalg.cholesky(prior.covariance)
    λ, U = np.linalg.eigh(S.T @ total.A @ S)
    b = np.einsum("...ij,...i->...j", U, (total.B + total.A @ prior.mean) @ S)
    return S, np.maximum(λ, 0), U, b  # A is a sum of squares: what is below zero is rounding


def direction_rates(
    beta: Float[np.ndarray, "*k"] | float, λ: Float[np.ndarray, "*m d"], resolution: float
) -> Float[np.ndarray, "*n d"]:
    """The learning rate in each direction t of `diagonalise`.

    It is beta, or less where the standard deviation would become smaller than `resolution` times the prior's.
    """
    if resolution == 0:
        return np.broadcast_to(beta, np.broadcast_shapes(np.shape(beta), λ.shape))
    return np.minimum(beta, (resolution**-2 - 1) / (2 * np.maximum(λ, np.finfo(np.float64).tiny)))


class ConjugatePosterior:
    """A Gaussian generalised posterior N(mean, covariance) that knows the data it came from.

    Built by `NSMBayesConj.build_posterior`. It never changes: `update`, `with_beta` and `with_prior` return new ones.
    """

    method, label = "nsm-bayes-conj", "NSM-Bayes-conj"

    certificate: Any = None
    """What has been proved about the robustness of this posterior; None as long as nothing has been."""

    def __init__(
        self,
        prior: GaussianPrior,
        recipe: LossRecipe,
        point_loss: DataSetLoss,
        data: tuple[Float[np.ndarray, "_ d_x"], ...],
        total: Quadratic,
        beta: float,
        *,
        parameter_names: tuple[str, ...],
        resolution: float = 0.0,
        calibration: Calibration | None = None,
    ):
        self.prior, self.beta, self.resolution, self.calibration = prior, beta, resolution, calibration
        self.parameter_names = parameter_names
        self.mean, self._precision = gaussian_posterior(prior, total, beta, resolution)
        self.covariance: Float[np.ndarray, "d d"] = np.linalg.inv(self._precision)
        self.recipe, self.point_loss, self.total, self._data = recipe, point_loss, total, data

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.mean)

    @property
    def n(self) -> int:
        """Number of observations."""
        return sum(map(len, self._data))

    @property
    def converged(self) -> bool:
        """Always: a closed form has nothing to converge."""
        return True

    @property
    def stds(self) -> Float[np.ndarray, " d"]:
        """Marginal standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations."""
        return np.concatenate(self._data)

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weight w(x_i) of each observation, between 0 (ignored) and 1 (trusted)."""
        return weights_of(self.point_loss, self.x)

    def weight_at(self, x: Any) -> Float[np.ndarray, " k"]:
        """The weight that observations at other places would have."""
        return weights_of(self.point_loss, _checks.matrix(x, "x", width=self._data[0].shape[1]))

    @property
    def location_scatter(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]:
        """The robust location and scatter that the weight is built on."""
        return np.asarray(self.point_loss.centre.location), np.asarray(self.point_loss.centre.scatter)

    @property
    def learning_rates(self) -> Float[np.ndarray, " d"]:
        """The learning rate in each of d directions: beta, or less where `resolution` sets the limit."""
        return direction_rates(self.beta, diagonalise(self.prior, self.total)[1], self.resolution)

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid."""
        return stats.norm.pdf(grid, self.mean[j], self.stds[j])

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j with probability `level`."""
        low, high = stats.norm.interval(level, self.mean[j], self.stds[j])
        return float(low), float(high)

    def sample(self, shape: tuple[int, ...] | int, seed: int = 0) -> Float[np.ndarray, "... d"]:
        """Independent draws of shape `shape + (d,)`."""
        shape = _checks.shape(shape, "shape")
        rng = np.random.default_rng(_checks.integer(seed, "seed"))
        return self.mean + rng.standard_normal((*shape, self.dim)) @ np.linalg.cholesky(self.covariance).T

    def log_density(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Normalised log density at points of shape (..., d)."""
        residual = self._residual(theta)
        log_det = np.linalg.slogdet(self._precision)[1] - self.dim * np.log(2 * np.pi)
        return 0.5 * (log_det - np.einsum("...i,ij,...j", residual, self._precision, residual))

    @property
    def average_loss(self) -> Quadratic:
        """L_NSM as a quadratic in theta: theta' A theta + 2 theta' B + C."""
        return Quadratic(*(a / self.n for a in self.total))

    def loss(self, theta: Any) -> Float[np.ndarray, "..."]:
        """The average loss L_NSM(theta) over the observations, at points of shape (..., d)."""
        theta = self._residual(theta) + self.mean
        A, B, C = self.average_loss
        return np.einsum("...i,ij,...j", theta, A, theta) + 2 * theta @ B + C

    def each_loss(self) -> Iterator[Quadratic]:
        """The losses of the observations, in blocks of them."""
        return (part for block in self._data for part in each_loss(self.point_loss, block))

    def contains(self, theta: Any, level: float = 0.95) -> Bool[np.ndarray, "..."]:
        """Whether points of shape (..., d) lie in the central region of probability `level`."""
        residual = self._residual(theta)
        distance = np.einsum("...i,ij,...j", residual, self._precision, residual)
        return distance <= stats.chi2.ppf(_checks.fraction(level, "level"), self.dim)

    def mse(self, theta_true: Any) -> float:
        """E |theta - theta_true|^2 under the posterior, in closed form."""
        residual = self._residual(_checks.vector(theta_true, "theta_true", length=self.dim))
        return float(residual @ residual + np.trace(self.covariance))

    def influence(self) -> Float[np.ndarray, " n"]:
        """KL(posterior || posterior without observation i), for every i, with the weight as it stands."""
        parts = []
        for each in self.each_loss():
            others = Quadratic(*(total - own for total, own in zip(self.total, each, strict=True)))
            mean, precision = gaussian_posterior(self.prior, others, self.beta, self.resolution)
            step, change = mean - self.mean, precision @ self.covariance
            trace, log_det = np.trace(change, axis1=1, axis2=2), np.linalg.slogdet(change)[1]
            parts.append(0.5 * (trace - self.dim - log_det + np.einsum("ni,nij,nj->n", step, precision, step)))
        return np.maximum(np.concatenate(parts), 0)  # rounding can leave an uninfluential point at -1e-16

    def update(self, x_new: Any, *, refit: bool = False) -> "ConjugatePosterior":
        """The posterior after more observations: exact, with no simulation, no training and the same beta.

        The location, the scatter and the coordinates of the weight stay as they are, and the cost is that of the new
        observations alone. With `refit` they are estimated again from all observations.
        """
        x_new = _checks.matrix(x_new, "x_new", width=self._data[0].shape[1], width_is="columns, like the first data")
        data = (*self._data, x_new)
        if refit:
            everything = np.concatenate(data)
            loss = self.recipe.fit(everything)
            return self._replace(point_loss=loss, data=(everything,), total=total_loss(loss, everything))
        more = total_loss(self.point_loss, x_new)
        return self._replace(data=data, total=Quadratic(*(a + b for a, b in zip(self.total, more, strict=True))))

    def with_beta(self, beta: float, *, calibration: Calibration | None = None) -> "ConjugatePosterior":
        """The posterior for another learning rate, from the same sums; `calibration` says where it comes from."""
        return self._replace(beta=_checks.positive(beta, "beta"), calibration=calibration)

    def with_prior(self, prior: Any) -> "ConjugatePosterior":
        """The posterior for another Gaussian prior, from the same sums and with the same beta."""
        prior = as_gaussian(prior)
        if prior.dim != self.dim:
            raise InputError(f"`prior` must be over {self.dim} parameters; got {prior.dim}.")
        return self._replace(prior=prior)

    def summary(self) -> str:
        """A table of the marginals and a line on the observations, to print."""
        lines = [
            f"{self.label} posterior from {self.n} observations, beta = {self.beta:.4g}",
            f"{'parameter':<12}{'mean':>10}{'sd':>10}{'2.5 %':>10}{'97.5 %':>10}{'prior sd':>10}",
        ]
        for j, name in enumerate(self.parameter_names):
            mean, std, prior_std = self.mean[j], self.stds[j], self.prior.stds[j]
            low, high = self.interval(j)
            lines.append(f"{name:<12}{mean:>10.3f}{std:>10.3f}{low:>10.3f}{high:>10.3f}{prior_std:>10.3f}")
        lines.append(describe_doubts(self.weights))
        lowered = int((self.learning_rates < self.beta).sum())
        if lowered:
            lines.append(
                f"In {lowered} of {self.dim} directions the learning rate was lowered: the surrogate is not trusted to "
                f"know any of them\nto better than {self.resolution:g} prior standard deviations."
            )
        if self.calibration is not None:
            lines.append(self.calibration.wrapped())
        return "\n".join(lines)

    def to_arviz(self, draws: int = 1000, *, chains: int = 4, seed: int = 0) -> Any:
        """Independent draws as an ArviZ InferenceData. Needs the extra `nsmbayes[arviz]`."""
        from nsmbayes.interop.arviz import inference_data

        return inference_data(self.sample((chains, draws), seed=seed), self.parameter_names, self.x, self.weights)

    def _residual(self, theta: Any) -> Float[np.ndarray, "... d"]:
        theta = _checks.finite_array(theta, "theta")
        if theta.ndim == 0 or theta.shape[-1] != self.dim:
            raise InputError(f"`theta` must have shape (..., {self.dim}); got {theta.shape}.")
        return theta - self.mean

    def _replace(self, **changes: Any) -> "ConjugatePosterior":
        fields = {
            "prior": self.prior,
            "recipe": self.recipe,
            "point_loss": self.point_loss,
            "data": self._data,
            "total": self.total,
            "beta": self.beta,
            "parameter_names": self.parameter_names,
            "resolution": self.resolution,
            "calibration": self.calibration,
        }
        return ConjugatePosterior(**(fields | changes))

    def __repr__(self) -> str:
        return f"ConjugatePosterior(mean={self.mean}, sd={self.stds}, n={self.n}, beta={self.beta:.4g})"
