"""The Gaussian prior."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from nsmbayes._internal import checks
from nsmbayes._internal.columns import check_names
from nsmbayes.errors import InputError

_LARGEST = 1e100  # fourth powers of larger numbers cannot be computed


class GaussianPrior:
    """A Gaussian prior N(mean, covariance) on R^d.

    Args:
        mean: the prior mean, shape (d,).
        covariance: a symmetric positive definite matrix (d, d), or a vector (d,) of variances.
        parameter_names: names that methods with this prior use in tables and plots.

    Example:
        >>> import nsmbayes as nsm
        >>> prior = nsm.GaussianPrior(mean=[0.0, 1.0], covariance=[4.0, 0.25])
        >>> prior.sample((3,), seed=0).shape
        (3, 2)
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]

    def __init__(self, mean: Any, covariance: Any, *, parameter_names: tuple[str, ...] | None = None):
        self.mean = checks.vector(mean, "mean")
        matrix = checks.finite_array(covariance, "covariance")
        if matrix.ndim == 1:
            matrix = np.diag(matrix)
        self.covariance = checks.covariance(matrix, "covariance", size=len(self.mean))
        if np.abs(self.mean).max() > _LARGEST or not (1 / _LARGEST <= self.std.min() <= self.std.max() <= _LARGEST):
            raise InputError(
                f"Prior means must be at most {_LARGEST:g} in size, and standard deviations between {1 / _LARGEST:g} "
                f"and {_LARGEST:g}; got {self.mean.tolist()} and {self.std.tolist()}. Choose other units."
            )
        if parameter_names is not None:
            parameter_names = check_names(parameter_names, "parameter_names", len(self.mean))
        self.parameter_names = parameter_names

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.mean)

    @property
    def precision(self) -> Float[np.ndarray, "d d"]:
        """The inverse of the covariance."""
        return np.linalg.inv(self.covariance)

    @property
    def std(self) -> Float[np.ndarray, " d"]:
        """Marginal standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid."""
        return stats.norm.pdf(grid, self.mean[j], self.std[j])

    def sample(self, shape: tuple[int, ...] | int, seed: int) -> Float[np.ndarray, "... d"]:
        """Draws of shape `shape + (d,)`."""
        shape, rng = checks.shape(shape, "shape"), np.random.default_rng(checks.integer(seed, "seed"))
        return self.mean + rng.standard_normal((*shape, self.dim)) @ np.linalg.cholesky(self.covariance).T

    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Log density at points of shape (..., d)."""
        residual = np.linalg.solve(np.linalg.cholesky(self.covariance), (np.asarray(theta) - self.mean)[..., None])
        log_det = np.linalg.slogdet(2 * np.pi * self.covariance)[1]
        return -0.5 * ((residual[..., 0] ** 2).sum(-1) + log_det)

    def __repr__(self) -> str:
        return f"GaussianPrior(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"


def same_dimension(prior: GaussianPrior, dim: int) -> GaussianPrior:
    """Return `prior` if it has `dim` parameters; raise `InputError` otherwise."""
    if prior.dim != dim:
        raise InputError(f"`prior` must have {dim} parameters; got {prior.dim}.")
    return prior
