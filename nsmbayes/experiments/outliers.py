"""Outliers for any task, placed by their distance from the bulk of its clean observations."""

from typing import Any

import numpy as np

from nsmbayes._internal import checks
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.tasks import Observation
from nsmbayes.tasks.contamination import choose_outliers

_DISTANCES = {
    "far": 30.0,
    "near": 4.0,
    "clustered": 8.0,
    "both-sided": 8.0,
    "population": 6.0,
    "stuck": 6.0,
    "drift": 6.0,
    "rounded": 2.0,
}
_CLUSTER_SPREAD = 0.1

KINDS = tuple(_DISTANCES)


def place_outliers(clean: Any, kind: str, *, fraction: float, distance: float | None = None, seed: int) -> Observation:
    """Turn a fraction of clean observations into outliers along one random direction.

    Distances are Mahalanobis distances: in units of the robust scatter ("mcd") of `clean`. The direction is uniform on
    the sphere in coordinates whitened by it; in one dimension it is a sign.

    - "far" and "near": rows are moved along the direction, by 30 and by 4;
    - "clustered": rows are replaced by a cluster of spread 0.1 around the point at distance 8 from the location;
    - "both-sided": rows are moved by 8 in one direction or the opposite one, at random;
    - "population": rows are moved by 6, with half the spread: a second population;
    - "stuck": all rows have the same value, at distance 6 from the location;
    - "rounded": every column of the rows is rounded to multiples of 2 of its scales, measured from the location;
    - "drift": one column of the rows, chosen at random, is moved by 1 to 6 of its scales, increasing with row number.

    Rows and direction depend only on `seed` and the number of rows. The rows of a smaller fraction are a subset of
    those of a larger fraction, and become the same outliers.

    Args:
        clean: observations without outliers, shape (n, d_x), enough of them for a robust scatter.
        kind: one of `KINDS`.
        fraction: fraction of rows to turn into outliers, in [0, 1); exactly `round(fraction * n)` rows.
        distance: replaces the default distance of the kind.
        seed: an integer.

    Example:
        >>> from nsmbayes import tasks
        >>> from nsmbayes.experiments.outliers import place_outliers
        >>> clean = tasks.get("gaussian").observe(100, seed=1).clean
        >>> observed = place_outliers(clean, "near", fraction=0.1, seed=0)
        >>> observed.x.shape, int(observed.is_outlier.sum())
        ((100, 1), 10)
    """
    clean = checks.matrix(clean, "clean")
    kind = checks.choice(kind, "kind", KINDS)
    r = _DISTANCES[kind] if distance is None else checks.positive(distance, "distance")
    rng = np.random.default_rng(checks.integer(seed, "seed"))
    n, d = clean.shape
    centre = fit_location_scatter(clean)
    direction = rng.standard_normal(d)
    step = np.asarray(centre.factor) @ (r * direction / np.linalg.norm(direction))
    is_outlier = choose_outliers(n, fraction=fraction, rng=rng)
    if kind == "clustered":
        cluster = _CLUSTER_SPREAD * rng.standard_normal((n, d)) @ np.asarray(centre.factor).T
        outliers = np.asarray(centre.location) + step + cluster
    elif kind == "population":
        outliers = np.asarray(centre.location) + step + 0.5 * (clean - np.asarray(centre.location))
    elif kind == "stuck":
        outliers = np.tile(np.asarray(centre.location) + step, (n, 1))
    elif kind == "drift":
        outliers, column = clean.copy(), rng.integers(d)
        outliers[:, column] += np.linspace(1, r, n) * np.sqrt(np.asarray(centre.scatter)[column, column])
    elif kind == "rounded":
        location, scale = np.asarray(centre.location), r * np.sqrt(np.diagonal(np.asarray(centre.scatter)))
        outliers = location + scale * np.rint((clean - location) / scale)
    elif kind == "both-sided":
        outliers = clean + rng.choice([-1.0, 1.0], (n, 1)) * step
    else:
        outliers = clean + step
    return Observation(x=np.where(is_outlier[:, None], outliers, clean), clean=clean.copy(), is_outlier=is_outlier)
