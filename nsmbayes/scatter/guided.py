"""Location and scatter of few observations in many columns, guided by a scatter that is known from elsewhere."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from nsmbayes._internal import checks
from nsmbayes._internal.constants import GAUSSIAN_MAD
from nsmbayes.errors import InputError
from nsmbayes.scatter._consistency import FAR, TAIL, consistency_factor, cutoff
from nsmbayes.scatter.location_scatter import LocationScatter

_STEPS = 10
_LEAST_ROWS = 3


def fit_guided(x: Any, guide: Any = None) -> LocationScatter:
    """Median along the guide's axes, and the scatter of the rows that are not outliers, shrunk towards the guide.

    The minimum covariance determinant needs several rows per column; with fewer, or with a tight group of outliers in
    many columns, its subset is arbitrary. Here the distances of rows are first computed with the shape of the guide.
    The sample covariance of the rows within the 97.5 % quantile is shrunk towards the guide by the amount that is
    optimal for Gaussian data (the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero 2010). Distances are
    then computed with the result, and so on until nothing changes. Just under half of the observations may be outliers.

    Args:
        x: observations, shape (n, d), three or more.
        guide: a scatter, shape (d, d), e.g. that of a fitted model; only its shape matters, not its size. By default,
            the diagonal matrix of squared median absolute deviations.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.scatter import fit_guided
        >>> x = np.random.default_rng(0).normal(size=(12, 8))
        >>> x[:2] = 50.0
        >>> fitted = fit_guided(x, np.eye(8))
        >>> bool(fitted.scatter.max() < 2.5)
        True
    """
    x = checks.matrix(x, "x", min_rows=_LEAST_ROWS)
    n, d = x.shape
    location = np.median(x, axis=0)
    guide = _deviations(x, location) if guide is None else checks.covariance(guide, "guide", size=d)
    spread = np.sqrt(np.diagonal(guide))
    factor = spread[:, None] * np.linalg.cholesky(guide / np.outer(spread, spread))
    with np.errstate(over="ignore"):
        offset = np.clip((x / 2 - location / 2) / spread * 2, -FAR, FAR)
    z = np.linalg.solve(factor / spread[:, None], offset.T).T
    # the median along the guide's axes: medians of correlated columns are biased most where good rows vary least
    middle = np.median(z, axis=0)
    z, location = z - middle, location + factor @ middle
    squares = (z**2).sum(axis=1)
    shape, inside, share = np.eye(d), np.ones(n, bool), 1.0
    for _ in range(_STEPS):
        # scale so that the median distance of good rows is that of Gaussian data: only the shape of the metric matters
        unit = np.median(squares[inside]) / chdtri(d, 1 - share / 2)
        if not unit > 0:
            raise InputError("`x` has too many ties: half of its rows are the same. Drop repeated rows.")
        near, shape = squares <= unit * cutoff(d), shape * unit
        if share < 1 and (near == inside).all():
            break
        inside, share = near, 1 - TAIL
        sample = z[inside] - z[inside].mean(axis=0)
        shape = _shrunk(sample.T @ sample / max(len(sample) - 1, 1), len(sample)) * consistency_factor(d, 1 - TAIL)
        squares = (z * np.linalg.solve(shape, z.T).T).sum(axis=1)
    return LocationScatter.from_scatter(location, factor @ shape @ factor.T, "guided")


def _shrunk(sample: Float[np.ndarray, "d d"], m: int) -> Float[np.ndarray, "d d"]:
    """A sample covariance of m rows, shrunk towards a multiple of the identity."""
    d = len(sample)
    trace, squared = np.trace(sample), (sample**2).sum()
    excess = (m + 1 - 2 / d) * (squared - trace**2 / d)
    share = 1.0 if excess <= 0 else min(1.0, ((1 - 2 / d) * squared + trace**2) / excess)
    return (1 - share) * sample + share * trace / d * np.eye(d)


def _deviations(x: Float[np.ndarray, "n d"], location: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
    deviations = np.median(np.abs(x - location), axis=0) / GAUSSIAN_MAD
    tied = np.flatnonzero(~(deviations > 0))
    if tied.size:
        raise InputError(
            f"`x` has too many ties: more than half of the values in column {tied[0]} are the same, so that it has no "
            "scale. If the column is discrete, add uniform noise of one grid step; otherwise drop it."
        )
    return np.diag(deviations**2)
