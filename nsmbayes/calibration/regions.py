"""Central regions of draws, by quantiles of the draws or by a Gaussian approximation: do they contain a point?"""

import numpy as np
from jaxtyping import Float
from scipy import stats

_FLAT = 1e-12  # smaller eigenvalues of a correlation matrix are zero up to rounding
_OFF = 1e-6  # tolerated distance of a point from the subspace of the draws, in standard deviations


def region_contains(draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"], level: float) -> bool:
    """Whether the central region of probability `level` contains the point.

    The region is an ellipsoid: its radius is a quantile of the Mahalanobis distances of the draws from their mean. It
    is flat if the draws lie on a line or a plane, as for a chain that hardly moved.
    """
    distances, distance = _distances(draws, point)
    return bool(distance <= np.quantile(distances, level))


def region_level(draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"]) -> float:
    """The level of the smallest region of `region_contains` with the point; 1 if the point is beyond all draws."""
    distances, distance = _distances(draws, point)
    ordered = np.sort(distances)
    if distance > ordered[-1]:
        return 1.0
    above = int(np.searchsorted(ordered, distance))
    rank = float(above)
    if above and ordered[above] > distance:  # between two draws: quantiles are interpolated
        rank -= (ordered[above] - distance) / (ordered[above] - ordered[above - 1])
    return rank / (len(draws) - 1)


def relative_radii(
    draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"], levels: tuple[float, ...]
) -> Float[np.ndarray, " levels"]:
    """The squared distance of the point, in units of the squared radius of the regions of some levels.

    Example:
        >>> draws = np.random.default_rng(0).standard_normal((4000, 2))
        >>> relative_radii(draws, np.array([3.0, 0.0]), (0.5, 0.95)).round(1).tolist()
        [6.3, 1.5]
    """
    distances, distance = _distances(draws, point)
    radii = np.quantile(distances, levels)
    return distance / np.where(radii > 0, radii, np.finfo(float).tiny)


def _distances(
    draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, " m"], float]:
    """Squared Mahalanobis distances of the draws and of the point; infinite if it is off the subspace of the draws."""
    mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
    std = np.sqrt(np.diag(covariance))
    scale = np.where(std > 0, std, 1.0)
    z, at = (draws - mean) / scale, (point - mean) / scale
    eigenvalues, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    flat = eigenvalues <= _FLAT
    whiten = axes[:, ~flat] / np.sqrt(eigenvalues[~flat])
    distances, distance = (((each @ whiten) ** 2).sum(axis=-1) for each in (z, at))
    off = np.abs(at @ axes[:, flat]).max(initial=0.0) > _OFF
    return distances, np.inf if off else float(distance)


def gaussian_region_contains(draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"], level: float) -> bool:
    """Whether the ellipsoid of the draws' mean and covariance, with a chi-squared quantile as radius, contains a point.

    The paper's algorithms use this region. Draws without variation, or with infinite values, contain nothing.
    """
    if not np.isfinite(draws).all():
        return False
    offset = point - draws.mean(axis=0)
    covariance = np.atleast_2d(np.cov(draws.T))
    try:
        distance = offset @ np.linalg.solve(covariance, offset)
    except np.linalg.LinAlgError:
        return False
    return bool(distance <= stats.chi2.ppf(level, len(point)))
