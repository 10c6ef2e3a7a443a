"""Bounds that remain valid in floating point: every constant of a certificate is rounded outward.

Almost all constants are sums and products of nonnegative numbers, at most about 1e5 of them, so rounding changes them
by a relative 1e5 x 1.1e-16 at worst. Moving the result by a relative 1e-9 more than covers that. Eigenvalues of
symmetric matrices have an error that is small relative to the largest one; it is subtracted from the smallest.
"""

import math

import numpy as np
from jaxtyping import Float

_MARGIN = 1e-9
_EIGENVALUE_ERROR = 1e-12  # relative to the largest; the error of LAPACK is below 1e-14 times the dimension


def up(value: float) -> float:
    """Round `value` up by more than its rounding error."""
    return math.nextafter(value + _MARGIN * abs(value), math.inf)


def down(value: float) -> float:
    """Round `value` down by more than its rounding error."""
    return math.nextafter(value - _MARGIN * abs(value), -math.inf)


def wider(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Round nonnegative numbers up."""
    return values * (1 + _MARGIN)


def narrower(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Round nonnegative numbers down."""
    return values * (1 - _MARGIN)


def eigenvalue_range(matrix: Float[np.ndarray, "d d"]) -> tuple[float, float]:
    """A lower bound of the smallest and an upper bound of the largest eigenvalue of a symmetric matrix."""
    values = np.linalg.eigvalsh(matrix)
    error = _EIGENVALUE_ERROR * float(np.abs(values).max())
    return down(float(values[0]) - error), up(float(values[-1]) + error)


def norm(matrix: Float[np.ndarray, "a b"]) -> float:
    """Upper bound of the spectral norm."""
    return up(float(np.linalg.norm(matrix, 2)))
