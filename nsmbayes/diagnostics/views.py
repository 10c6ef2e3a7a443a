"""One-dimensional views of data sets (columns, pairs of columns, distance), and their weighted distributions."""

from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

GRID = 31
"""Number of points at which distribution functions are compared."""
_ALL_PAIRS = 10  # with more columns, only pairs of neighbours are views
LEVELS: Float[np.ndarray, " grid"] = (np.arange(GRID) + 0.5) / GRID


class Views(NamedTuple):
    """Linear views of whitened rows, and their distance from the centre if there are several columns."""

    location: Float[np.ndarray, " d"]
    directions: Float[np.ndarray, "linear d"]
    inverse: Float[np.ndarray, "d d"]
    columns: tuple[tuple[int, ...], ...]
    """The columns of each view."""

    @classmethod
    def of(cls, location: Float[np.ndarray, " d"], scatter: Float[np.ndarray, "d d"]) -> "Views":
        """Build the views for a robust location and scatter: columns, sums and differences of pairs, and distance."""
        d, scale = len(location), np.sqrt(np.diag(scatter))
        correlation = scatter / np.outer(scale, scale)
        rows = list(np.eye(d))
        columns: list[tuple[int, ...]] = [(j,) for j in range(d)]
        pairs = combinations(range(d), 2) if d <= _ALL_PAIRS else pairwise(range(d))
        for i, j in pairs:
            for sign in (1.0, -1.0):
                row = np.zeros(d)
                row[[i, j]] = np.array([1.0, sign]) / np.sqrt(max(2 + 2 * sign * correlation[i, j], 1e-9))
                rows.append(row)
                columns.append((i, j))
        columns += [tuple(range(d))] * (d > 1)
        inverse = np.linalg.inv(np.linalg.cholesky(correlation)) / scale
        return cls(location, np.stack(rows) / scale, inverse, tuple(columns))

    def __len__(self) -> int:
        return len(self.columns)

    def at(self, view: int, x: Float[np.ndarray, "*sets d"]) -> Float[np.ndarray, "*sets"]:
        """The value of each row in a view."""
        if view < len(self.directions):
            return (x - self.location) @ self.directions[view]
        return self.distance(x)

    def distance(self, x: Float[np.ndarray, "*sets d"]) -> Float[np.ndarray, "*sets"]:
        """The Mahalanobis distance of each row from the location."""
        return np.sqrt((((x - self.location) @ self.inverse.T) ** 2).sum(axis=-1))


def weighted_quantiles(z: Float[np.ndarray, " m"], weights: Float[np.ndarray, " m"]) -> Float[np.ndarray, " grid"]:
    """Weighted quantiles of z at `LEVELS`."""
    order = np.argsort(z)
    reached = np.cumsum(weights[order]) / weights.sum()
    return z[order][np.minimum(np.searchsorted(reached, LEVELS), len(z) - 1)]


def shared_distributions(
    z: Float[np.ndarray, " m"], weights: Float[np.ndarray, "b m"], places: Float[np.ndarray, " grid"]
) -> Float[np.ndarray, "b grid"]:
    """`distributions` of the same rows for several vectors of weights."""
    below = (z[:, None] < places).astype(float)
    return weights @ below / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)


def distributions(
    z: Float[np.ndarray, "b n"], weights: Float[np.ndarray, "b n"], places: Float[np.ndarray, " grid"]
) -> Float[np.ndarray, "b grid"]:
    """Fraction of the weight of each data set below each place: the weighted distribution function."""
    bins = len(places) + 1
    index = np.searchsorted(places, z, side="right") + bins * np.arange(len(z))[:, None]
    found = np.bincount(index.ravel(), weights.ravel(), minlength=bins * len(z)).reshape(len(z), bins)
    total = found.cumsum(axis=1)
    return total[:, :-1] / np.maximum(total[:, -1:], 1e-300)
