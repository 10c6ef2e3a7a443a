"""Central regions of draws: whether they contain a point, by the draws' own quantiles or as if they were Gaussian."""

import numpy as np
from jaxtyping import Float
from scipy import stats

_FLAT = 1e-12  # eigenvalues of a correlation matrix below this are zero but for rounding
_OFF = 1e-6  # standard deviations that a point may be off the subspace of the draws by rounding


def region_contains(draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"], level: float) -> bool:
    """Whether the central region of probability `level` contains the point.

    The region is an ellipsoid: Mahalanobis distances from the mean of the draws, cut at their own quantile. It is
    flat if the draws are: those of a chain that hardly moved lie on a line or a plane.
    """
    mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
    std = np.sqrt(np.diag(covariance))
    scale = np.where(std > 0, std, 1.0)
    z, at = (draws - mean) / scale, (point - mean) / scale
    eigenvalues, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    flat = eigenvalues <= _FLAT
    if np.abs(at @ axes[:, flat]).max(initial=0.0) > _OFF:
        return False
    whiten = axes[:, ~flat] / np.sqrt(eigenvalues[~flat])
    distances, distance = (((each @ whiten) ** 2).sum(axis=-1) for each in (z, at))
    return bool(distance <= np.quantile(distances, level))


def gaussian_region_contains(draws: Float[np.ndarray, "m d"], point: Float[np.ndarray, " d"], level: float) -> bool:
    """Whether the ellipsoid of the draws' mean and covariance, cut at a quantile of chi-squared, contains the point.

    The region of the paper's algorithms. Draws that do not vary, or that diverged, contain nothing.
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
