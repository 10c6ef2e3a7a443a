"""How far a posterior is from where it should be."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist, pdist

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.posteriors.empirical import Empirical

_MEDIAN_POINTS = 2000  # enough for the median of pairwise distances; all pairs of more would only cost memory


def median_lengthscale(y: Float[np.ndarray, "n d"]) -> float:
    """The median heuristic: sqrt(median |y_i - y_j|^2 / 2), over pairs i < j."""
    return float(np.sqrt(np.median(pdist(y[:: max(1, len(y) // _MEDIAN_POINTS)], "sqeuclidean")) / 2))


def mmd2(y: Any, reference: Any, *, lengthscale: float | None = None) -> float:
    """Squared maximum mean discrepancy between two samples, with a Gaussian kernel exp(-|y - y'|^2 / (2 l^2)).

    The V-statistic of the paper, with 1 / n_2^2 in its last term. The length-scale l is that of the median heuristic
    on `reference` unless it is given.

    Example:
        >>> import numpy as np
        >>> import nsmbayes as nsm
        >>> y = np.random.default_rng(0).standard_normal((500, 2))
        >>> nsm.mmd2(y, y)
        0.0
        >>> bool(nsm.mmd2(y + 1.0, y) > 0.1)
        True
    """
    y = _checks.matrix(y, "y")
    reference = _checks.matrix(reference, "reference", width=y.shape[1], min_rows=2)
    scale = median_lengthscale(reference) if lengthscale is None else _checks.positive(lengthscale, "lengthscale")
    if scale == 0:
        raise InputError(
            "`reference` is constant, or so tied that the median of its distances is zero, and the kernel no width. "
            "Pass `lengthscale`."
        )

    def mean_kernel(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"]) -> float:
        return float(np.exp(-cdist(a, b, "sqeuclidean") / (2 * scale**2)).mean())

    return mean_kernel(y, y) - 2 * mean_kernel(y, reference) + mean_kernel(reference, reference)


def mse(draws: Any, theta_true: Any) -> float:
    """Mean of |theta - theta_true|^2 over posterior draws."""
    draws = _checks.matrix(draws, "draws", min_rows=2)
    return Empirical(draws).mse(_checks.vector(theta_true, "theta_true", length=draws.shape[1]))


def covers(draws: Any, theta_true: Any, *, level: float = 0.95) -> bool:
    """Whether the central region of probability `level` of the draws contains `theta_true`; see `Empirical.covers`."""
    draws = _checks.matrix(draws, "draws", min_rows=3)
    truth = _checks.vector(theta_true, "theta_true", length=draws.shape[1])
    return Empirical(draws).covers(truth, _checks.fraction(level, "level"))
