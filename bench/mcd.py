"""Robust scatter of bootstrap resamples: vectorised, compared with a loop over scikit-learn's MinCovDet."""

import warnings

import jax
import numpy as np
from jaxtyping import Float

from bench.timing import Row, side_by_side
from nsmbayes.scatter import mcd_batch

TINY = {"resamples": 3, "n": 40, "repeats": 1}


def run(resamples: int = 200, n: int = 100, dimensions: tuple[int, ...] = (1, 3), repeats: int = 5) -> list[Row]:
    """Both get the same resamples of contaminated Gaussian data, in one and in three dimensions."""
    return [row for d in dimensions for row in _compare(resamples, n, d, repeats)]


def _compare(resamples: int, n: int, d: int, repeats: int) -> list[Row]:
    drawn = [_resampled(resamples, n, d, seed) for seed in range(repeats + 1)]
    ours, theirs = side_by_side(
        {
            f"mcd_batch, {resamples} resamples of {n} x {d}": lambda i: _batched(drawn[i]),
            f"scikit-learn in a loop, {resamples} resamples of {n} x {d}": lambda i: _looped(drawn[i]),
        },
        repeats=repeats,
    )
    a, b = _batched(drawn[0]), _looped(drawn[0])
    differences = np.abs(a - b).max(axis=(1, 2)) / np.abs(b).max(axis=(1, 2))
    # On a busy machine the longer call is interrupted more often: the ratio of wall times would favour the shorter.
    ours.detail["times_faster_cpu"] = (theirs.later_cpu_s or 0.0) / (ours.later_cpu_s or float("nan"))
    ours.detail["times_faster_wall"] = theirs.later_s / ours.later_s
    # If they differ, they stopped at different subsets: both search, neither is exact in several dimensions.
    ours.detail["share_of_equal_scatters"] = float((differences < 1e-6).mean())
    return [ours, theirs]


def _resampled(resamples: int, n: int, d: int, seed: int) -> Float[np.ndarray, "resamples n d"]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    x[: n // 10] -= 50
    return x[rng.integers(n, size=(resamples, n))]


def _batched(x: Float[np.ndarray, "resamples n d"]) -> Float[np.ndarray, "resamples d d"]:
    return mcd_batch(x, jax.random.key(0))[1]


def _looped(x: Float[np.ndarray, "resamples n d"]) -> Float[np.ndarray, "resamples d d"]:
    from sklearn.covariance import MinCovDet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of small determinants due to ties in a resample
        return np.stack([MinCovDet(random_state=0).fit(rows).covariance_ for rows in x])
