"""Bootstrap coverage of the conjugate posterior as a function of the learning rate, for all rates at once.

In coordinates where the prior is standard normal and the bootstrapped loss is diagonal, the squared Mahalanobis
distance of theta_hat from the posterior mean is a sum of one term a dimension. One eigendecomposition a resample then
serves every beta.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from nsmbayes.losses import Quadratic
from nsmbayes.posteriors.conjugate import diagonalise, direction_rates
from nsmbayes.priors import GaussianPrior


class CoverageCurve(NamedTuple):
    """Resamples in their own diagonal coordinates: theta = mean + S U t, loss sum(λ t^2 + 2 b t)."""

    mean: Float[np.ndarray, " d"]
    S: Float[np.ndarray, "d d"]
    U: Float[np.ndarray, "resamples d d"]
    λ: Float[np.ndarray, "resamples d"]
    b: Float[np.ndarray, "resamples d"]
    threshold: float
    resolution: float

    def __call__(
        self, beta: Float[np.ndarray, "*betas"] | float, theta_hat: Float[np.ndarray, "*betas_or_none d"]
    ) -> Float[np.ndarray, "*betas"]:
        """The fraction of resamples whose region contains theta_hat, for each beta; theta_hat may vary with beta."""
        k = 2 * direction_rates(np.asarray(beta)[..., None, None], self.λ, self.resolution)
        standard = np.linalg.solve(self.S, (theta_hat - self.mean)[..., None])[..., 0]
        t = np.einsum("rij,...i->...rj", self.U, standard)
        distance = ((t + k * (self.λ * t + self.b)) ** 2 / (1 + k * self.λ)).sum(axis=-1)
        return np.asarray((distance <= self.threshold).mean(axis=-1))


def coverage_curve(prior: GaussianPrior, resampled: Quadratic, level: float, resolution: float = 0.0) -> CoverageCurve:
    """Coverage by the regions of probability `level` of the resampled posteriors."""
    S, λ, U, b = diagonalise(prior, resampled)
    threshold = float(stats.chi2.ppf(level, prior.dim))
    return CoverageCurve(mean=prior.mean, S=S, U=U, λ=λ, b=b, threshold=threshold, resolution=resolution)
