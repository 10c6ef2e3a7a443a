"""Huber contamination: a fraction of the observations is replaced by values that are not draws of the model.

Every contamination is a pure function of NumPy arrays. It takes the clean observations, one per row, and a random
generator. It returns the contaminated observations and a mask of the contaminated rows.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from nsmbayes._internal import checks
from nsmbayes.errors import InputError


def choose_outliers(n: int, *, fraction: float, rng: np.random.Generator) -> Bool[np.ndarray, " n"]:
    """A mask with exactly `round(fraction * n)` of `n` rows set, chosen at random.

    With the same generator state, the rows of a smaller fraction are a subset of those of a larger one, so a study over
    fractions changes only one thing at a time.

    Example:
        >>> int(choose_outliers(100, fraction=0.1, rng=np.random.default_rng(0)).sum())
        10
    """
    n = checks.integer(n, "n", at_least=1)
    fraction = checks.fraction(fraction, "fraction")
    is_outlier = np.zeros(n, dtype=bool)
    is_outlier[rng.permutation(n)[: round(fraction * n)]] = True
    return is_outlier


def huber_shift(
    clean: Any, *, fraction: float, shift: Any, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
    """Move a fraction of the rows: `x_i = clean_i + shift` where `is_outlier_i`, `x_i = clean_i` elsewhere.

    The outliers are draws of P before they are moved, so x follows Huber's mixture (1 - fraction) P + fraction Q with
    Q = P + shift.

    Args:
        clean: observations of P, shape (n, d).
        fraction: fraction of the rows to move, in [0, 1); exactly `round(fraction * n)` rows are moved.
        shift: a number, or one number for each of the d columns.
        rng: chooses the rows.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, is_outlier = huber_shift(np.zeros((4, 1)), fraction=0.25, shift=-50.0, rng=rng)
        >>> float(x.sum()), int(is_outlier.sum())
        (-50.0, 1)
    """
    clean = checks.matrix(clean, "clean")
    n, d = clean.shape
    shift = checks.vector(shift, "shift")
    if shift.shape not in {(1,), (d,)}:
        raise InputError(f"`shift` must be one number or have shape ({d},), one per column; got shape {shift.shape}.")
    is_outlier = choose_outliers(n, fraction=fraction, rng=rng)
    return np.where(is_outlier[:, None], clean + shift, clean), is_outlier


def cauchy_noise(
    clean: Any, *, fraction: float, scale: Any, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
    """Add independent Cauchy noise to every column of a fraction of the rows.

    With the same generator state, a row that is contaminated at a smaller fraction gets the same noise at a larger one.

    Args:
        clean: observations, shape (n, d).
        fraction: fraction of the rows to contaminate, in [0, 1); exactly `round(fraction * n)` rows.
        scale: half the interquartile range of the noise: a positive number, or one for each column.
        rng: chooses the rows and draws the noise.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, is_outlier = cauchy_noise(np.zeros((10, 2)), fraction=0.3, scale=1.0, rng=rng)
        >>> int((x != 0).all(axis=1).sum())
        3
    """
    clean = checks.matrix(clean, "clean")
    n, d = clean.shape
    scale = checks.vector(scale, "scale")
    if scale.shape not in {(1,), (d,)}:
        raise InputError(f"`scale` must be one number or have shape ({d},), one per column; got shape {scale.shape}.")
    if (scale <= 0).any():
        raise InputError(f"`scale` must be positive; got {scale}.")
    is_outlier = choose_outliers(n, fraction=fraction, rng=rng)
    return np.where(is_outlier[:, None], clean + scale * rng.standard_cauchy((n, d)), clean), is_outlier


def binomial_thinning(
    counts: Any, *, fraction: float, retention: float, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "n T"], Bool[np.ndarray, " n"]]:
    """Undercount a fraction of the rows: each case in them is kept with probability `retention`.

    With the same generator state, a row that is thinned at a smaller fraction gets the same counts at a larger one.

    Args:
        counts: whole numbers, one series per row, shape (n, T).
        fraction: fraction of the rows to thin, in [0, 1); exactly `round(fraction * n)` rows.
        retention: the probability that a case is kept, in [0, 1).
        rng: chooses the rows and the cases.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> counts, is_outlier = binomial_thinning(np.full((4, 3), 100), fraction=0.25, retention=0.5, rng=rng)
        >>> (counts[~is_outlier] == 100).all(), (counts[is_outlier] < 100).all()
        (np.True_, np.True_)
    """
    counts = checks.matrix(counts, "counts")
    if (counts < 0).any() or (counts != np.floor(counts)).any():
        raise InputError("`counts` must contain whole numbers of at least 0; thin the counts before you normalise.")
    retention = checks.fraction(retention, "retention")
    whole = counts.astype(np.int64)
    is_outlier = choose_outliers(len(whole), fraction=fraction, rng=rng)
    return np.where(is_outlier[:, None], rng.binomial(whole, retention), whole), is_outlier
