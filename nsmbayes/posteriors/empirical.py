"""A distribution known by its draws, summarised for tables and plots."""

import numpy as np
from jaxtyping import Float
from scipy import stats

_KDE_POINTS = 4000  # a kernel density estimate of more draws looks the same and takes longer
_FLAT = 1e-12  # eigenvalues of a correlation matrix below this are zero but for rounding
_OFF = 1e-6  # standard deviations that a point may be off the subspace of the draws by rounding


class Empirical:
    """Moments and marginal densities of draws (m, d)."""

    def __init__(self, draws: Float[np.ndarray, "m d"]):
        self.draws = draws
        self.mean: Float[np.ndarray, " d"] = draws.mean(axis=0)
        self.covariance: Float[np.ndarray, "d d"] = np.atleast_2d(np.cov(draws.T))
        self.stds: Float[np.ndarray, " d"] = np.sqrt(np.diag(self.covariance))

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid, by a kernel density estimate; of a chain that never moved, one peak."""
        column = self.draws[:: max(1, len(self.draws) // _KDE_POINTS), j]
        if np.ptp(column) == 0:
            return (np.arange(len(grid)) == np.abs(grid - column[0]).argmin()) * len(grid) / np.ptp(grid)
        return stats.gaussian_kde(column)(grid)

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j that holds the fraction `level` of the draws."""
        low, high = np.quantile(self.draws[:, j], [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def mse(self, theta_true: Float[np.ndarray, " d"]) -> float:
        """Mean of |theta - theta_true|^2 over the draws."""
        return float(((self.draws - theta_true) ** 2).sum(axis=1).mean())

    def covers(self, theta: Float[np.ndarray, " d"], level: float) -> bool:
        """Whether the central region of probability `level` contains theta.

        The region is an ellipsoid: Mahalanobis distances from the mean of the draws, cut at their own quantile. It is
        flat if the draws are: those of a chain that hardly moved lie on a line or a plane.
        """
        scale = np.where(self.stds > 0, self.stds, 1.0)
        z, point = (self.draws - self.mean) / scale, (theta - self.mean) / scale
        eigenvalues, axes = np.linalg.eigh(self.covariance / np.outer(scale, scale))
        flat = eigenvalues <= _FLAT
        if np.abs(point @ axes[:, flat]).max(initial=0.0) > _OFF:
            return False
        whiten = axes[:, ~flat] / np.sqrt(eigenvalues[~flat])
        distances, distance = (((each @ whiten) ** 2).sum(axis=-1) for each in (z, point))
        return bool(distance <= np.quantile(distances, level))
