"""Counts with many zeros: a robust scale describes the majority of the values, which may be a single value."""

import numpy as np
from jaxtyping import Float

from nsmbayes.scatter.location_scatter import LocationScatter

_MAD = 1.4826  # makes the median absolute deviation consistent for Gaussian data
_FEWEST = 3  # values beside an atom that are needed to estimate a scale


def beside_atoms(
    x: Float[np.ndarray, "n d"], grid_steps: tuple[float, ...], centre: LocationScatter
) -> tuple[LocationScatter, list[int]]:
    """Location and scatter corrected for columns in which more than half of the values are equal; and these columns.

    The scatter of such a column is only that of the noise that makes it continuous, and all other values would be
    outliers. Here its scale becomes the median absolute deviation from the location of the values other than the
    majority.

    Args:
        x: observations with added noise of one grid step.
        grid_steps: the steps, 0 for a continuous column.
        centre: the location and scatter of `x`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> counts = np.where(rng.random((200, 1)) < 0.7, 0.0, rng.poisson(50.0, (200, 1)))
        >>> x = counts + rng.uniform(-0.5, 0.5, counts.shape)
        >>> narrow = LocationScatter.from_scatter(np.zeros(1), 0.1 * np.eye(1), "mcd")
        >>> wide, columns = beside_atoms(x, (1.0,), narrow)
        >>> columns, bool(60 < np.sqrt(wide.scatter[0, 0]) < 90)
        ([0], True)
    """
    location, scatter = np.asarray(centre.location), np.asarray(centre.scatter)
    scales = np.sqrt(np.diagonal(scatter))
    wider, found = np.ones(len(scales)), []
    for j, step in enumerate(grid_steps):
        if step == 0:
            continue
        cells, counts = np.unique(np.rint(x[:, j] / step), return_counts=True)
        others = x[np.rint(x[:, j] / step) != cells[counts.argmax()], j]
        if counts.max() > len(x) / 2 and len(others) >= _FEWEST:
            wider[j] = max(1.0, _MAD * np.median(np.abs(others - location[j])) / scales[j])
            found.append(j)
    if not found:
        return centre, []
    return LocationScatter.from_scatter(location, wider[:, None] * scatter * wider, centre.estimator), found
