"""The constants that make the minimum covariance determinant consistent for Gaussian data."""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import chdtr, chdtri, fdtri

# The reweighted scatter leaves out observations in this upper tail of the chi-squared distribution.
TAIL = 0.025
# Distances are clipped at this many scales: such a point is always an outlier, and its square does not overflow.
FAR = 1e100


def support_size(n: int, d: int) -> int:
    """h = ⌈(n + d + 1)/2⌉, the subset size with the largest breakdown value."""
    return min(math.ceil((n + d + 1) / 2), n)


def minimum_rows(d: int) -> int:
    """The smallest number of rows for which a scatter of d columns can be regular and robust."""
    return 2 * d + 2


def cutoff(d: int) -> float:
    """The squared distance at which the upper tail of the chi-squared distribution begins."""
    return float(chdtri(d, TAIL))


def small_sample_cutoff(d: int, m: Float[np.ndarray, "*b"]) -> Float[np.ndarray, "*b"]:
    """`cutoff` for the squared distance from the mean of m other points, in the metric of their covariance.

    For Gaussian data that distance has a scaled F distribution (Hotelling); with many points the chi-squared one.
    """
    return d * (m**2 - 1) / (m * (m - d)) * fdtri(d, m - d, 1 - TAIL)


def consistency_factor(d: int, share: float) -> float:
    """Covariance of Gaussian data divided by that of their central fraction `share` (Croux, Haesbroeck 1999)."""
    return float(share / chdtr(d + 2, chdtri(d, 1 - share)))
