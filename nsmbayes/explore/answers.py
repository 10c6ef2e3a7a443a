"""Distributions that the page draws: a Gaussian, or weighted draws."""

from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from scipy import stats

_KERNEL = 0.9  # times sd n^(-1/5): Silverman's rule of thumb
_REACH = 4  # kernel widths beyond which a draw adds nothing


class Answer(Protocol):
    """A distribution over the parameters, with what is needed to draw it."""

    @property
    def mean(self) -> Float[np.ndarray, " d"]:
        """Means of the parameters."""
        ...

    @property
    def std(self) -> Float[np.ndarray, " d"]:
        """Standard deviations of the parameters."""
        ...

    def density(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on an evenly spaced grid."""
        ...


class GaussianAnswer(NamedTuple):
    """A Gaussian distribution."""

    mean: Float[np.ndarray, " d"]
    std: Float[np.ndarray, " d"]

    def density(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on an evenly spaced grid."""
        return stats.norm.pdf(grid, self.mean[j], self.std[j])


class DrawsAnswer:
    """Weighted draws, with a smoothed density.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.explore import DrawsAnswer
        >>> draws = np.random.default_rng(0).standard_normal((2000, 1))
        >>> answer, grid = DrawsAnswer(draws, 0.5 * draws[:, 0]), np.linspace(-5, 5, 201)
        >>> bool(abs(answer.mean[0] - 0.5) < 0.1), bool(abs(answer.density(0, grid).sum() * 0.05 - 1) < 0.01)
        (True, True)
    """

    def __init__(self, theta: Float[np.ndarray, "n d"], log_weights: Float[np.ndarray, " n"] | None = None):
        logs = np.zeros(len(theta)) if log_weights is None else log_weights - log_weights.max()
        weights = np.exp(logs)
        self.theta, self.weights = theta, weights / weights.sum()
        self.mean: Float[np.ndarray, " d"] = self.weights @ theta
        self.std: Float[np.ndarray, " d"] = np.sqrt(self.weights @ (theta - self.mean) ** 2)

    @property
    def effective(self) -> float:
        """Effective sample size of the weighted draws."""
        return float(1 / (self.weights**2).sum())

    def density(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on an evenly spaced grid: draws are counted in the cells of the grid and smoothed."""
        step = grid[1] - grid[0]
        place = (self.theta[:, j] - grid[0]) / step
        cell = np.floor(place)
        inside = (cell >= 0) & (cell < len(grid) - 1)
        cell, share = cell[inside].astype(int), (place - cell)[inside]
        heights = np.bincount(cell, self.weights[inside] * (1 - share), len(grid))
        heights += np.bincount(cell + 1, self.weights[inside] * share, len(grid))
        width = max(_KERNEL * self.std[j] * self.effective**-0.2, 0.3 * step)
        reach = min(len(grid) // 2 - 1, int(np.ceil(_REACH * width / step)))
        kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
        return np.convolve(heights, kernel / kernel.sum(), mode="same") / step
