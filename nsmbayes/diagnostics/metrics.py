"""Metrics of posterior draws: maximum mean discrepancy, mean squared error, coverage."""

from typing import Any

import jax
import jax.numpy as jnp

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import region_contains
from nsmbayes.diagnostics import kernels
from nsmbayes.posteriors.empirical import Empirical


@double_precision
def mmd2(y: Any, reference: Any, *, lengthscale: float | None = None) -> float:
    """Squared maximum mean discrepancy between two samples, with a Gaussian kernel exp(-|y - y'|^2 / (2 l^2)).

    This is the V-statistic of the paper, with 1 / n_2^2 in its last term. The default length-scale l is the median
    heuristic on `reference`.

    Example:
        >>> import numpy as np
        >>> import nsmbayes as nsm
        >>> y = np.random.default_rng(0).standard_normal((500, 2))
        >>> nsm.metrics.mmd2(y, y)
        0.0
        >>> nsm.metrics.mmd2(y + 1.0, y) > 0.1
        True
    """
    y = checks.matrix(y, "y")
    reference = checks.matrix(reference, "reference", width=y.shape[1], min_rows=2)
    given = checks.optional_positive(lengthscale, "lengthscale")
    scale = kernels.kernel_lengthscale(reference, "reference", given=given)
    a, b = jnp.asarray(y), jnp.asarray(reference)
    # one compiled function for each mean: no table of differences in memory, and exactly 0 for identical samples
    aa, ab, bb = (_mean_kernel(*pair, jnp.asarray(scale)) for pair in ((a, a), (a, b), (b, b)))
    return float(aa - 2 * ab + bb)


_mean_kernel = jax.jit(kernels.mean_kernel)


def mse(draws: Any, theta_true: Any) -> float:
    """Mean of |theta - theta_true|^2 over posterior draws.

    Example:
        >>> import nsmbayes as nsm
        >>> nsm.metrics.mse([[0.0, 0.0], [2.0, 0.0]], [0.0, 1.0])
        3.0
    """
    draws = checks.matrix(draws, "draws", min_rows=2)
    return Empirical(draws).mse(checks.vector(theta_true, "theta_true", length=draws.shape[1]))


def covers(draws: Any, theta_true: Any, *, level: float = 0.95) -> bool:
    """Whether the central region of probability `level` of the draws contains `theta_true`.

    The region is an ellipsoid, see `nsmbayes.calibration.region_contains`.

    Example:
        >>> import numpy as np
        >>> import nsmbayes as nsm
        >>> draws = np.random.default_rng(0).standard_normal((500, 2))
        >>> nsm.metrics.covers(draws, [0.0, 0.0]), nsm.metrics.covers(draws, [9.0, 0.0])
        (True, False)
    """
    draws = checks.matrix(draws, "draws", min_rows=3)
    truth = checks.vector(theta_true, "theta_true", length=draws.shape[1])
    return region_contains(draws, truth, checks.fraction(level, "level"))
