"""Coverage of posteriors of bootstrap resamples, by reweighting the draws of one posterior."""

import numpy as np
from jaxtyping import Float


def reweighted_coverage(
    positions: Float[np.ndarray, "draws d"],
    log_weights: Float[np.ndarray, "resamples draws"],
    reference: Float[np.ndarray, " d"],
    level: float,
) -> tuple[float, float]:
    """Fraction of reweighted regions that contain the reference, and the mean relative effective sample size.

    The region of a resample is the ellipsoid of the weighted mean and covariance that contains `level` of the weight.
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
    # if a few draws have all the weight, the covariance is singular; the ESS then accounts for the resample
    solve = np.linalg.pinv(covariances, hermitian=True)
    slopes = np.einsum("rij,rj->ri", solve, means)
    # squared distances from the mean, up to a constant of the resample, computed as matrix products
    distances = solve.reshape(-1, d * d) @ products.T - 2 * slopes @ z.T
    of_reference = np.einsum("i,rij,j->r", at, solve, at) - 2 * slopes @ at
    inside = (W * (distances < of_reference[:, None])).sum(axis=1) < level
    return float(inside.mean()), float((1 / (W**2).sum(axis=1)).mean() / len(positions))


def normalised(log_weights: Float[np.ndarray, "*k draws"]) -> Float[np.ndarray, "*k draws"]:
    """Return weights that sum to one."""
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
