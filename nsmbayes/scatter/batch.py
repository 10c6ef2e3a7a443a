"""Location and scatter of many datasets of the same size at once, e.g. for a bootstrap.

This runs in NumPy and float64, between jitted steps and not inside them. On a CPU, most of the work, the selection of
the nearest points, is many times faster in NumPy than in XLA, and nothing has to be compiled.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key, UInt32

from nsmbayes._internal import checks
from nsmbayes._internal.constants import GAUSSIAN_MAD
from nsmbayes.errors import InputError
from nsmbayes.scatter._consistency import FAR, minimum_rows, support_size
from nsmbayes.scatter._mcd_line import mcd_line
from nsmbayes.scatter._mcd_space import is_regular, mcd_space
from nsmbayes.scatter.location_scatter import ESTIMATORS

Batch = tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d d"], Bool[np.ndarray, " b"]]
AnyKey = Key[Array, ""] | UInt32[Array, "2"]


def mcd_batch(x: Any, key: AnyKey, *, starts: int = 50, warm_start: tuple[Any, Any] | None = None) -> Batch:
    """Componentwise medians and reweighted minimum covariance determinants.

    The definition (subset size, consistency factors, reweighting) is that of scikit-learn's `MinCovDet`. For one
    column, the solution is exact. With several columns, the search runs from many starts, and its subset is as good as
    scikit-learn's or better. The result for a dataset does not depend on the rest of the batch.

    Args:
        x: b datasets of n rows and d columns, shape (b, n, d).
        key: a JAX random key, for the starts; not used for one column.
        starts: number of random starts per dataset, for two or more columns.
        warm_start: an additional start: a location (d,) and a scatter (d, d), e.g. those of the original data of a
            bootstrap.

    Returns:
        Locations (b, d), scatters (b, d, d), and flags (b,) that are False where more than half of the points lie on a
        hyperplane (ties in a resample). The scatter does not exist then; the identity is returned in its place.
    """
    x = _datasets(x)
    n, d = x.shape[1:]
    if n < minimum_rows(d):
        raise InputError(
            f"`x` has {n} rows; the minimum covariance determinant of {d} column{'s' if d > 1 else ''} needs "
            f"{minimum_rows(d)} or more. Pass more observations{or_mad(x[0])}."
        )
    if d == 1:
        centre, scale, variance, ok = mcd_line(x[:, :, 0])
        return _finish(centre[:, None], variance[:, None, None], scale[:, None], ok)
    centre = np.median(x, axis=1)
    z, scale, untied = _standardised(x, centre, support_size(n, d))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    warm = None if warm_start is None else _standardised_start(warm_start, centre, scale)
    scatter, regular, _ = mcd_space(z, rng, starts, warm)
    return _finish(centre, scatter, scale, untied & regular)


def or_mad(x: Float[np.ndarray, "n d"]) -> str:
    """The end of an error message that suggests the "mad" estimator; empty if it does not exist for these data."""
    spread = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    return ', or choose the "mad" estimator (scatter="mad")' if len(x) >= 3 and (spread > 0).all() else ""


def fit_batch(x: Any, estimator: str, key: AnyKey, *, warm_start: tuple[Any, Any] | None = None) -> Batch:
    """`fit_location_scatter` for b datasets at once, x of shape (b, n, d).

    Returns locations (b, d), scatters (b, d, d), and flags (b,) that are False where no regular scatter exists; see
    `mcd_batch`. Only "mcd" uses the key and the warm start.
    """
    checks.choice(estimator, "estimator", ESTIMATORS)
    if estimator == "mcd":
        return mcd_batch(x, key, warm_start=warm_start)
    x = _datasets(x)
    n, d = x.shape[1:]
    if estimator == "mad":
        _need_rows(n, 3, estimator)
        centre = np.median(x, axis=1)
        with np.errstate(over="ignore"):
            scale = np.median(np.abs(x - centre[:, None]), axis=1) / GAUSSIAN_MAD
        ok = scale.min(axis=1) > 0
        return _finish(centre, np.broadcast_to(np.eye(d), (len(x), d, d)), np.where(scale > 0, scale, 1), ok)
    _need_rows(n, d + 1, estimator)
    centre = x.mean(axis=1)
    offset = x - centre[:, None]
    scale = np.abs(offset).max(axis=1)
    scale = np.where(scale > 0, scale, 1)
    z = offset / scale[:, None]
    scatter = z.swapaxes(1, 2) @ z / (n - 1)
    return _finish(centre, scatter, scale, is_regular(scatter))


def _datasets(x: Any) -> Float[np.ndarray, "b n d"]:
    array = checks.finite_array(x, "x")
    if array.ndim != 3 or 0 in array.shape:
        raise InputError(f"`x` must have shape (b, n, d), b datasets of n rows each; got shape {array.shape}.")
    return array


def _need_rows(n: int, least: int, estimator: str) -> None:
    if n < least:
        raise InputError(
            f"`x` has {n} rows; the {estimator!r} estimator needs at least {least}. Pass more observations."
        )


def _standardised(
    x: Float[np.ndarray, "b n d"], centre: Float[np.ndarray, "b d"], h: int
) -> tuple[Float[np.ndarray, "b n d"], Float[np.ndarray, "b d"], Bool[np.ndarray, " b"]]:
    """x minus the median, in units of the distance that contains h values; the units; and whether all are positive.

    A unit is zero only if h values are tied, which makes the determinant zero; the MAD can be zero with fewer ties.
    """
    with np.errstate(over="ignore"):
        offset = x - centre[:, None]
        scale = np.partition(np.abs(offset), h - 1, axis=1)[:, h - 1]
        untied = scale.min(axis=1) > 0
        scale = np.where(scale > 0, scale, 1)
        return np.clip(offset / scale[:, None], -FAR, FAR), scale, untied


def _standardised_start(
    start: tuple[Any, Any], centre: Float[np.ndarray, "b d"], scale: Float[np.ndarray, "b d"]
) -> tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d d"]]:
    d = centre.shape[1]
    location = checks.vector(start[0], "warm_start location", length=d)
    scatter = checks.covariance(start[1], "warm_start scatter", size=d)
    return (location - centre) / scale, scatter / scale[:, :, None] / scale[:, None, :]


def _finish(
    centre: Float[np.ndarray, "b d"],
    scatter: Float[np.ndarray, "b d d"],
    scale: Float[np.ndarray, "b d"],
    ok: Bool[np.ndarray, " b"],
) -> Batch:
    """The scatters in the user's units and symmetric; the identity where no scatter exists."""
    with np.errstate(over="ignore", under="ignore"):
        scatter = (scatter + scatter.swapaxes(1, 2)) / 2 * scale[:, :, None] * scale[:, None, :]
    variance = np.diagonal(scatter, axis1=1, axis2=2)
    ok = ok & np.isfinite(scatter).all(axis=(1, 2)) & (variance > 0).all(axis=1)
    return centre, np.where(ok[:, None, None], scatter, np.eye(scatter.shape[1])), ok
