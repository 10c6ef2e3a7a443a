"""Tests of uniformity on [0, 1], with simultaneous bands for the empirical distribution function.

Säilynoja, Bürkner and Vehtari (2022), "Graphical test for discrete uniformity and its applications in goodness-of-fit
evaluation and multiple sample comparison".
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats
from scipy.special import gammaln

_POINTS = 100  # maximum number of points at which the distribution function is compared
_HALVINGS = 25  # bisection steps for the logarithm of gamma


class Band(NamedTuple):
    """A band that the empirical distribution function of uniform numbers leaves with a known probability."""

    points: Float[np.ndarray, " k"]
    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]


def band(n: int, alarm: float) -> Band:
    """The band that the distribution function of n uniform numbers leaves anywhere with probability at most `alarm`.

    Example:
        >>> from nsmbayes.diagnostics.uniformity import band
        >>> found = band(200, 0.05)
        >>> bool((found.low < found.points).all() and (found.points < found.high).all())
        True
    """
    low, high = _limits(n, _gamma(n, alarm))
    return Band(evaluation_points(n), low / n, high / n)


def p_value(u: Float[np.ndarray, " n"]) -> float:
    """The probability that n uniform numbers deviate at least as much from uniformity at some point as these do.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.diagnostics.uniformity import p_value
        >>> p_value(np.linspace(0.0, 1.0, 200)) > 0.9, p_value(np.linspace(0.3, 1.0, 200)) < 1e-6
        (True, True)
    """
    n = len(u)
    z = evaluation_points(n)
    counts = np.searchsorted(np.sort(u), z, side="right")
    rarest = 2 * np.minimum(*(tail[np.arange(len(z)), counts] for tail in _tails(n))).min()
    return float(np.clip(1 - inside_probability(n, float(rarest)), 0, 1))


def evaluation_points(n: int) -> Float[np.ndarray, " k"]:
    """The points at which the distribution function of n numbers is compared."""
    k = min(n, _POINTS)
    return np.arange(1, k) / k


def inside_probability(n: int, gamma: float) -> float:
    """The exact probability that n uniform numbers stay inside all pointwise bands of level 1 - gamma.

    The counts at successive points are a Markov chain: given that a of n numbers are below z, each of the others is
    below z' with probability (z' - z) / (1 - z).
    """
    low, high = _limits(n, gamma)
    if (low > high).any():
        return 0.0
    log_factorial = gammaln(np.arange(n + 1) + 1.0)
    counts, probabilities, before = np.zeros(1, int), np.ones(1), 0.0
    for z, least, most in zip(evaluation_points(n), low, high, strict=True):
        p = (z - before) / (1 - before)
        after = np.arange(least, most + 1)
        new, left = after - counts[:, None], n - counts[:, None]
        possible = new >= 0
        new = np.where(possible, new, 0)
        log = log_factorial[left] - log_factorial[new] - log_factorial[left - new]
        log = log + new * np.log(p) + (left - new) * np.log1p(-p)
        probabilities = probabilities @ np.where(possible, np.exp(log), 0.0)
        counts, before = after, z
    return float(probabilities.sum())


def _limits(n: int, gamma: float) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """The counts whose tail probabilities are above gamma / 2 on both sides, at every point."""
    below, above = _tails(n)
    return (2 * below > gamma).argmax(axis=1), n - (2 * above > gamma)[:, ::-1].argmax(axis=1)


@functools.lru_cache(maxsize=4)
def _tails(n: int) -> tuple[Float[np.ndarray, "k counts"], Float[np.ndarray, "k counts"]]:
    """P(N <= count) and P(N >= count) of the number N of n uniform numbers below each point."""
    counts, z = np.arange(n + 1), evaluation_points(n)[:, None]
    return stats.binom.cdf(counts, n, z), stats.binom.sf(counts - 1, n, z)


@functools.lru_cache(maxsize=256)
def _gamma(n: int, alarm: float) -> float:
    """The largest gamma such that n uniform numbers leave the bands with probability at most `alarm`."""
    low, high = np.log(alarm) - 12.0, np.log(alarm)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if 1 - inside_probability(n, float(np.exp(middle))) <= alarm:
            low = middle
        else:
            high = middle
    return float(np.exp(low))
