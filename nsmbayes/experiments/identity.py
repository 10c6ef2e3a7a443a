"""Numerical check of the identity behind the noise levels: the unweighted loss over many levels is the likelihood.

On the Gaussian task everything can be computed without training or sampling: the density itself is the surrogate, and
posteriors are sums over a grid of theta.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import Loss, NLELoss
from nsmbayes.methods import NSMBayes
from nsmbayes.priors import GaussianPrior
from nsmbayes.surrogates import Density, MixtureDensity, Standardiser
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.weights import Constant


class ExactGaussian(MixtureDensity):
    """The density of the Gaussian task, N(mu, sigma^2) at theta = (mu, log sigma), as a mixture of one component.

    Example:
        >>> from nsmbayes.experiments.identity import exact_gaussian
        >>> print(f"{exact_gaussian().log_prob(jnp.zeros(2), jnp.zeros(1)):.3f}")
        -0.919
    """

    scale_x: Standardiser
    scale_theta: Standardiser

    def mixture(self, t: Float[Array, " 2"]) -> GaussianMixture:
        """The mixture with one component."""
        return GaussianMixture(jnp.zeros(1, t.dtype), t[:1, None], jnp.exp(2 * t[1:, None, None]))


def exact_gaussian() -> ExactGaussian:
    """Build the exact density, in the units of the task."""
    return ExactGaussian(*(Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False) for d in (1, 2)))


class GridPosterior(NamedTuple):
    """A generalised posterior at beta = 1 on a grid of theta."""

    losses: Float[np.ndarray, " points"]
    mean: Float[np.ndarray, "2"]
    covariance: Float[np.ndarray, "2 2"]


class Difference(NamedTuple):
    """Difference of one posterior from another, in units of the other."""

    mean_sds: float
    """Mahalanobis distance of the means: standard deviations in the direction in which they differ most."""
    covariance_ratios: tuple[float, float]
    """Smallest and largest ratio of variances over all directions."""


def gaussian_grid(x: Any, *, points: int = 41, reach: float = 7.0) -> Float[np.ndarray, "points2 2"]:
    """A grid of `points` x `points` values of (mu, log sigma), within `reach` standard errors of the maximum."""
    x = checks.matrix(x, "x", width=1, min_rows=2)
    points = checks.integer(points, "points", at_least=2)
    steps, sd = np.linspace(-reach, reach, points), x.std()
    axes = x.mean() + steps * sd / np.sqrt(len(x)), np.log(sd) + steps / np.sqrt(2 * len(x))
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def grid_posterior(loss: Loss, prior: GaussianPrior, grid: Float[np.ndarray, "points 2"]) -> GridPosterior:
    """Moments on a grid by the trapezoidal rule, which is very accurate for a density that vanishes at the edges."""
    losses = map_rows(_loss_at, grid, loss)
    logs = prior.log_prob(grid) - losses
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    return GridPosterior(losses, mean, (weights[:, None] * (grid - mean)).T @ (grid - mean))


def _loss_at(theta, loss):
    return loss(theta)


def difference(ours: Any, other: Any) -> Difference:
    """Compare `ours` with `other`; both are objects with `mean` and `covariance`.

    Example:
        >>> from nsmbayes import GaussianPrior
        >>> from nsmbayes.experiments.identity import difference
        >>> difference(GaussianPrior([1.0], [0.25]), GaussianPrior([0.0], [1.0]))
        Difference(mean_sds=1.0, covariance_ratios=(0.25, 0.25))
    """
    L = np.linalg.cholesky(other.covariance)
    whitened = np.linalg.solve(L, np.linalg.solve(L, ours.covariance).T)
    ratios = np.linalg.eigvalsh((whitened + whitened.T) / 2)
    shift = np.linalg.solve(L, ours.mean - other.mean)
    return Difference(float(np.linalg.norm(shift)), (float(ratios[0]), float(ratios[-1])))


@double_precision
def nle_loss(density: Density, x: Float[np.ndarray, "n d_x"]) -> NLELoss:
    """The loss of NLE."""
    return NLELoss(density, jnp.asarray(x))


def unweighted_loss(trained: NSMBayes, x: Float[np.ndarray, "n d_x"]) -> Loss:
    """The loss of NSM-Bayes with w = 1, at the noise levels of a method and with its surrogate."""
    return trained.setting(x, Constant()).loss(x)
