"""A distribution represented by draws, summarised for tables and plots."""

import numpy as np
from jaxtyping import Float
from scipy import stats

from nsmbayes.calibration import region_contains

_KDE_POINTS = 4000  # maximum number of draws in a kernel density estimate; more take longer and look the same


class Empirical:
    """Moments and marginal densities of draws (m, d)."""

    def __init__(self, draws: Float[np.ndarray, "m d"]):
        self.draws = draws
        self.mean: Float[np.ndarray, " d"] = draws.mean(axis=0)
        self.covariance: Float[np.ndarray, "d d"] = np.atleast_2d(np.cov(draws.T))
        self.std: Float[np.ndarray, " d"] = np.sqrt(np.diag(self.covariance))

    def sample(self, count: int, seed: int) -> Float[np.ndarray, "count d"]:
        """Choose `count` of the draws, without repetition if there are enough."""
        rng, total = np.random.default_rng(seed), len(self.draws)
        return self.draws[rng.permutation(total)[:count] if count <= total else rng.integers(total, size=count)]

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid, by a kernel density estimate; one peak if all draws are equal."""
        column = self.draws[:: max(1, len(self.draws) // _KDE_POINTS), j]
        if np.ptp(column) == 0:
            return (np.arange(len(grid)) == np.abs(grid - column[0]).argmin()) * len(grid) / np.ptp(grid)
        return stats.gaussian_kde(column)(grid)

    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j that contains the fraction `level` of the draws."""
        low, high = np.quantile(self.draws[:, j], [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def mse(self, theta_true: Float[np.ndarray, " d"]) -> float:
        """Mean of |theta - theta_true|^2 over the draws."""
        return float(((self.draws - theta_true) ** 2).sum(axis=1).mean())

    def covers(self, theta: Float[np.ndarray, " d"], level: float) -> bool:
        """Whether the central region of probability `level` contains theta; see `region_contains`."""
        return region_contains(self.draws, theta, level)
