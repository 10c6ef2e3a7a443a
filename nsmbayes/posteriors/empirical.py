"""A distribution known by its draws, summarised for tables and plots."""

import numpy as np
from jaxtyping import Float
from scipy import stats

_KDE_POINTS = 4000  # a kernel density estimate of more draws looks the same and takes longer


class Empirical:
    """Moments and marginal densities of draws (m, d)."""

    def __init__(self, draws: Float[np.ndarray, "m d"]):
        self.draws = draws
        self.mean: Float[np.ndarray, " d"] = draws.mean(axis=0)
        self.covariance: Float[np.ndarray, "d d"] = np.atleast_2d(np.cov(draws.T))
        self.stds: Float[np.ndarray, " d"] = np.sqrt(np.diag(self.covariance))

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid, by a kernel density estimate."""
        return stats.gaussian_kde(self.draws[:: max(1, len(self.draws) // _KDE_POINTS), j])(grid)

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j that holds the fraction `level` of the draws."""
        low, high = np.quantile(self.draws[:, j], [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def mse(self, theta_true: Float[np.ndarray, " d"]) -> float:
        """Mean of |theta - theta_true|^2 over the draws."""
        return float(((self.draws - theta_true) ** 2).sum(axis=1).mean())

    def covers(self, theta: Float[np.ndarray, " d"], level: float) -> bool:
        """Whether the central region of probability `level` contains theta.

        The region is an ellipsoid: Mahalanobis distances from the mean of the draws, cut at their own quantile.
        """
        factor = np.linalg.cholesky(self.covariance)
        distances = (np.linalg.solve(factor, (np.vstack([self.draws, theta]) - self.mean).T) ** 2).sum(axis=0)
        return bool(distances[-1] <= np.quantile(distances[:-1], level))
