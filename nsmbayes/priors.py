"""Priors over the parameters, in the unconstrained space R^d in which inference works."""

from typing import Any

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError


class GaussianPrior:
    """A Gaussian prior N(mean, covariance) on R^d.

    Args:
        mean: the prior mean, shape (d,).
        covariance: a symmetric positive definite matrix (d, d), or a vector (d,) of variances.

    Example:
        >>> import nsmbayes as nsm
        >>> prior = nsm.GaussianPrior(mean=[0.0, 1.0], covariance=[4.0, 0.25])
        >>> prior.sample((3,), seed=0).shape
        (3, 2)
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]

    def __init__(self, mean: Any, covariance: Any):
        self.mean = _checks.vector(mean, "mean")
        matrix = _checks.finite_array(covariance, "covariance")
        if matrix.ndim == 1:
            matrix = np.diag(matrix)
        self.covariance = _checks.covariance(matrix, "covariance", size=len(self.mean))

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.mean)

    @property
    def precision(self) -> Float[np.ndarray, "d d"]:
        """The inverse of the covariance."""
        return np.linalg.inv(self.covariance)

    @property
    def stds(self) -> Float[np.ndarray, " d"]:
        """Marginal standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def sample(self, shape: tuple[int, ...], seed: int) -> Float[np.ndarray, "... d"]:
        """Draws of shape `shape + (d,)`."""
        rng = np.random.default_rng(_checks.integer(seed, "seed"))
        return self.mean + rng.standard_normal((*shape, self.dim)) @ np.linalg.cholesky(self.covariance).T

    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Log density at points of shape (..., d)."""
        residual = np.linalg.solve(np.linalg.cholesky(self.covariance), (np.asarray(theta) - self.mean)[..., None])
        log_det = np.linalg.slogdet(2 * np.pi * self.covariance)[1]
        return -0.5 * ((residual[..., 0] ** 2).sum(-1) + log_det)

    def __repr__(self) -> str:
        return f"GaussianPrior(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"


def as_gaussian(prior: Any) -> GaussianPrior:
    """`prior` as a `GaussianPrior`: either it is one already, or it is one of numpyro's normal distributions."""
    if isinstance(prior, GaussianPrior):
        return prior
    base = prior
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):
        base = base.base_dist
    if isinstance(base, dist.MultivariateNormal):
        return GaussianPrior(np.asarray(prior.mean), np.asarray(base.covariance_matrix))
    if isinstance(base, dist.Normal):
        return GaussianPrior(np.atleast_1d(prior.mean), np.atleast_1d(prior.variance))
    raise InputError(
        f"`prior` must be Gaussian for a posterior in closed form; got {type(prior).__name__}. Pass "
        "nsmbayes.GaussianPrior(mean, covariance) or a numpyro Normal or MultivariateNormal, after a change of "
        "variables (log, logit) if your parameters are bounded."
    )
