"""The constants that make the minimum covariance determinant consistent for Gaussian data."""

import math

from scipy.special import chdtr, chdtri

# Observations in this upper tail of the chi-squared distribution are left out when the scatter is reweighted.
TAIL = 0.025
# Farther out than this many scales a point is an outlier wherever it lies, and its square is still a number.
FAR = 1e100


def support_size(n: int, d: int) -> int:
    """h = ⌈(n + d + 1)/2⌉, the size of the subset with the largest breakdown value."""
    return min(math.ceil((n + d + 1) / 2), n)


def minimum_rows(d: int) -> int:
    """The fewest rows with which a scatter of d columns can be both regular and robust."""
    return 2 * d + 2


def cutoff(d: int) -> float:
    """The squared distance at which the upper tail of the chi-squared distribution begins."""
    return float(chdtri(d, TAIL))


def consistency_factor(d: int, share: float) -> float:
    """Covariance of Gaussian data over that of their central `share` (Croux, Haesbroeck 1999)."""
    return float(share / chdtr(d + 2, chdtri(d, 1 - share)))
