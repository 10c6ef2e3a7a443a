"""Posteriors of bootstrap resamples by reweighting draws, and the coverage that they have."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._parallel import map_rows
from nsmbayes.posteriors.generalised import Target
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.samplers import Draws

Draw = Callable[[float, int], tuple[Target, Draws]]
"""Samples the posterior of the full data: draw(beta, seed)."""


class Calibrated(NamedTuple):
    """A learning rate, and draws of the posterior at it."""

    calibration: Calibration
    target: Target
    draws: Draws


class Losses(NamedTuple):
    """Total losses at many parameters: of the full data and of each resample."""

    full: Float[np.ndarray, " draws"]
    resampled: Float[np.ndarray, "resamples draws"]


def resample_counts(n: int, resamples: int, rng: np.random.Generator) -> Int[np.ndarray, "resamples n"]:
    """How often each observation occurs in each bootstrap resample."""
    return rng.multinomial(n, np.full(n, 1 / n), size=resamples)


def total_losses(
    target: Target, positions: Float[np.ndarray, "draws d"], counts: Int[np.ndarray, "resamples n"]
) -> Losses:
    """The losses of resamples at unconstrained parameters, without a table of every observation's.

    The weights of the observations stay those of the full data.
    """
    full, resampled = map_rows(_totals, positions, target, counts.astype(float))
    return Losses(full, resampled.T)


def _totals(u: Float[Array, " d"], target: Target, counts: Float[Array, "resamples n"]):
    each = target.loss.each(target.prior.constrain(u))
    return each.sum(), counts @ each


def reweighted_coverage(
    positions: Float[np.ndarray, "draws d"],
    log_weights: Float[np.ndarray, "resamples draws"],
    reference: Float[np.ndarray, " d"],
    level: float,
) -> tuple[float, float]:
    """Fraction of reweighted regions that contain the reference, and the mean relative effective sample size.

    The region of a resample is the ellipsoid of the weighted mean and covariance that holds `level` of the weight.
    """
    W = normalised(log_weights)
    shared = W.mean(axis=0)
    centre = shared @ positions
    scale = np.maximum(np.sqrt(shared @ (positions - centre) ** 2), 1e-300)
    z, at = (positions - centre) / scale, (reference - centre) / scale
    d = z.shape[1]
    products = (z[:, :, None] * z[:, None, :]).reshape(-1, d * d)
    means = W @ z
    covariances = (W @ products).reshape(-1, d, d) - means[:, :, None] * means[:, None, :]
    # a few draws that carry all the weight have a singular covariance; such a resample counts through its ESS
    solve = np.linalg.pinv(covariances, hermitian=True)
    slopes = np.einsum("rij,rj->ri", solve, means)
    # squared distances from the mean, less a constant of the resample: all of them as products of matrices
    distances = solve.reshape(-1, d * d) @ products.T - 2 * slopes @ z.T
    of_reference = np.einsum("i,rij,j->r", at, solve, at) - 2 * slopes @ at
    inside = (W * (distances < of_reference[:, None])).sum(axis=1) < level
    return float(inside.mean()), float((1 / (W**2).sum(axis=1)).mean() / len(positions))


def normalised(log_weights: Float[np.ndarray, "*k draws"]) -> Float[np.ndarray, "*k draws"]:
    """Weights that add up to one."""
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
