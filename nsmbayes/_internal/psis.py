"""Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao and Gabry, 2024).

The largest importance ratios are replaced by quantiles of a generalised Pareto distribution that is fitted to them. Its
shape k shows whether the result can be trusted: from about 0.7 on, far more draws would be needed than there are.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

_TRUSTED = 0.7
_FEWEST = 5  # smallest number of ratios to fit a tail to
_PRIOR_K, _PRIOR_COUNT = 0.5, 10.0  # the weakly informative prior on k, equivalent to ten observations of 1/2


class Smoothed(NamedTuple):
    """Smoothed importance weights, and their diagnostic k."""

    log_weights: Float[np.ndarray, "draws *k"]
    """Log weights; the weights sum to one over the draws."""
    k: Float[np.ndarray, "*k"]
    """The shape of the tail of the ratios; infinite if it could not be fitted."""


def trusted_k(draws: int) -> float:
    """The largest k for which this number of draws is enough: 0.7, or less for few draws."""
    return min(1 - 1 / np.log10(max(draws, 11)), _TRUSTED)


def smooth(log_ratios: Float[np.ndarray, "draws *k"]) -> Smoothed:
    """Smoothed importance weights from log ratios, for each column separately.

    Example:
        >>> import numpy as np
        >>> from nsmbayes._internal.psis import smooth
        >>> x = np.random.default_rng(0).standard_normal(2000)
        >>> found = smooth(0.1 * x)  # from N(0, 1) to N(0.1, 1)
        >>> bool(found.k < 0.7), bool(abs(np.exp(found.log_weights) @ x - 0.1) < 0.1)
        (True, True)
    """
    flat = log_ratios.reshape(len(log_ratios), -1)
    parts = [_smooth_one(column) for column in flat.T]
    weights, k = np.stack([part[0] for part in parts], axis=1), np.array([part[1] for part in parts])
    return Smoothed(weights.reshape(log_ratios.shape), k.reshape(log_ratios.shape[1:]))


def _smooth_one(log_ratios: Float[np.ndarray, " draws"]) -> tuple[Float[np.ndarray, " draws"], float]:
    s = len(log_ratios)
    logs, k = log_ratios - log_ratios.max(), np.inf
    if np.ptp(logs) < 1e-12:
        return np.full(s, -np.log(s)), -np.inf  # all ratios are equal: nothing was reweighted
    count = int(np.ceil(min(0.2 * s, 3 * np.sqrt(s))))
    order = np.argsort(logs, kind="stable")
    highest = logs[order[-count - 1]]
    tail, cutoff = order[logs[order] > highest], np.exp(highest)  # chains repeat draws, so some may tie with the cutoff
    count = len(tail)
    if count >= _FEWEST:
        k, scale = fit_pareto(np.exp(logs[tail]) - cutoff)
        p = (np.arange(count) + 0.5) / count
        quantiles = -scale * np.log1p(-p) if abs(k) < 1e-12 else scale * np.expm1(-k * np.log1p(-p)) / k
        logs = logs.copy()
        logs[tail] = np.minimum(np.log(quantiles + cutoff), 0.0)  # truncated at the largest observed ratio
    return logs - logsumexp(logs), float(k)


def fit_pareto(x: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution for ordered positive numbers.

    The estimate of Zhang and Stephens (2009): a posterior mean over a grid, with k shrunk towards 1/2.
    """
    n = len(x)
    m = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    b = (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quartile) + 1 / x[-1]
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    profile = n * (np.log(-b / k) - k - 1)
    weights = np.exp(profile - logsumexp(profile))
    best = float(weights @ b)
    shape = float(np.log1p(-best * x).mean())
    return (n * shape + _PRIOR_COUNT * _PRIOR_K) / (n + _PRIOR_COUNT), -shape / best
