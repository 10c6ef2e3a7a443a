"""Huber contamination: a fraction of the observations is replaced by something the model did not produce.

Every kind is a pure function of NumPy arrays. It takes the clean observations, one a row, and a random
generator, and returns the contaminated observations together with a mask of the rows it touched.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from nsmbayes import _checks
from nsmbayes._checks import InputError


def choose_outliers(n: int, *, fraction: float, rng: np.random.Generator) -> Bool[np.ndarray, " n"]:
    """A mask with exactly `round(fraction * n)` of `n` rows set, chosen at random.

    With the same generator state the rows of a smaller fraction are among those of a larger one, so that a
    study over fractions changes one thing at a time.

    Example:
        >>> int(choose_outliers(100, fraction=0.1, rng=np.random.default_rng(0)).sum())
        10
    """
    n = _checks.integer(n, "n", at_least=1)
    fraction = _checks.fraction(fraction, "fraction")
    is_outlier = np.zeros(n, dtype=bool)
    is_outlier[rng.permutation(n)[: round(fraction * n)]] = True
    return is_outlier


def huber_shift(
    clean: Any, *, fraction: float, shift: Any, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
    """Move a fraction of the rows: `x_i = clean_i + shift` where `is_outlier_i`, `x_i = clean_i` elsewhere.

    The outliers are draws of P themselves before they move, so that x follows Huber's mixture
    (1 - fraction) P + fraction Q with Q = P + shift.

    Args:
        clean: observations of P, shape (n, d).
        fraction: share of the rows to move, in [0, 1); exactly `round(fraction * n)` rows are moved.
        shift: a number, or one number for each of the d columns.
        rng: chooses the rows.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, is_outlier = huber_shift(np.zeros((4, 1)), fraction=0.25, shift=-50.0, rng=rng)
        >>> float(x.sum()), int(is_outlier.sum())
        (-50.0, 1)
    """
    clean = _checks.matrix(clean, "clean")
    n, d = clean.shape
    shift = _checks.vector(shift, "shift")
    if shift.shape not in {(1,), (d,)}:
        raise InputError(f"`shift` must be one number or have shape ({d},), one per column; got shape {shift.shape}.")
    is_outlier = choose_outliers(n, fraction=fraction, rng=rng)
    return np.where(is_outlier[:, None], clean + shift, clean), is_outlier
