"""Data sets in views, one number per row: columns, pairs of columns and the distance, by weighted distributions."""

from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

GRID = 31
"""Places at which distribution functions are compared."""
_ALL_PAIRS = 10  # columns up to which every pair is a view; of more, only neighbours are
LEVELS: Float[np.ndarray, " grid"] = (np.arange(GRID) + 0.5) / GRID


class Views(NamedTuple):
    """Linear views of whitened rows, and their distance from the centre if there are several columns."""

    location: Float[np.ndarray, " d"]
    directions: Float[np.ndarray, "linear d"]
    inverse: Float[np.ndarray, "d d"]
    columns: tuple[tuple[int, ...], ...]
    """The columns that each view looks at."""

    @classmethod
    def of(cls, location: Float[np.ndarray, " d"], scatter: Float[np.ndarray, "d d"]) -> "Views":
        """For a robust location and scatter: every column, sum and difference of every pair, and the distance."""
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
        """One number for each row."""
        if view < len(self.directions):
            return (x - self.location) @ self.directions[view]
        return self.distance(x)

    def distance(self, x: Float[np.ndarray, "*sets d"]) -> Float[np.ndarray, "*sets"]:
        """The Mahalanobis distance of each row from the location."""
        return np.sqrt((((x - self.location) @ self.inverse.T) ** 2).sum(axis=-1))


def weighted_quantiles(z: Float[np.ndarray, " m"], weights: Float[np.ndarray, " m"]) -> Float[np.ndarray, " grid"]:
    """The values below which the fractions `LEVELS` of the weight lie."""
    order = np.argsort(z)
    reached = np.cumsum(weights[order]) / weights.sum()
    return z[order][np.minimum(np.searchsorted(reached, LEVELS), len(z) - 1)]


def shared_distributions(
    z: Float[np.ndarray, " m"], weights: Float[np.ndarray, "b m"], places: Float[np.ndarray, " grid"]
) -> Float[np.ndarray, "b grid"]:
    """`distributions` of the same rows, weighted in several ways."""
    below = (z[:, None] < places).astype(float)
    return weights @ below / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)


def distributions(
    z: Float[np.ndarray, "b n"], weights: Float[np.ndarray, "b n"], places: Float[np.ndarray, " grid"]
) -> Float[np.ndarray, "b grid"]:
    """The fraction of the weight of each data set that lies below each of some places."""
    bins = len(places) + 1
    index = np.searchsorted(places, z, side="right") + bins * np.arange(len(z))[:, None]
    found = np.bincount(index.ravel(), weights.ravel(), minlength=bins * len(z)).reshape(len(z), bins)
    total = found.cumsum(axis=1)
    return total[:, :-1] / np.maximum(total[:, -1:], 1e-300)
