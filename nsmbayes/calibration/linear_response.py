"""Coverage of posteriors of bootstrap resamples by linear response, if reweighting leaves too few effective draws.

The variance of importance weights grows with the number of parameters: with ten parameters, only a few of thousands of
draws are effective for the posterior of a resample. Its mean is then still known to first order. With Delta the loss of
the resample minus that of the data, the mean moves by -beta Cov(theta, Delta), and the covariance is unchanged.
"""

import numpy as np
from jaxtyping import Float
from scipy.stats import chi2


def linear_coverage(
    positions: Float[np.ndarray, "draws d"],
    differences: Float[np.ndarray, "resamples draws"],
    drawn_at: float,
    prior_covariance: Float[np.ndarray, "d d"],
    betas: Float[np.ndarray, " k"],
    level: float,
) -> Float[np.ndarray, " k"]:
    """Fraction of the resamples whose central region contains the posterior mean of the data, at each learning rate.

    `positions` are draws at the learning rate `drawn_at`, `differences` the losses of the resamples minus that of the
    data at them. Between learning rates the precision is beta times that of the loss, plus the prior's.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> draws = 0.1 * rng.standard_normal((2000, 12))  # of a posterior of standard deviation 0.1
        >>> slopes = 10 * rng.standard_normal((200, 12))  # and resamples that move its mean by as much
        >>> found = linear_coverage(draws, slopes @ draws.T, 1.0, np.eye(12), np.array([0.5, 1.0]), 0.95)
        >>> bool(found[0] > 0.99), bool(0.9 < found[1] < 0.99)
        (True, True)
    """
    d = positions.shape[1]
    offset = positions - positions.mean(axis=0)
    # in the coordinates z with theta = mean + F z, the covariance of the draws is I
    variances, axes = np.linalg.eigh(offset.T @ offset / len(offset))
    sizes = np.sqrt(np.maximum(variances, 1e-300))
    F, z = axes * sizes, offset @ axes / sizes
    slopes = (differences - differences.mean(axis=1, keepdims=True)) @ z / len(z)
    of_prior = F.T @ np.linalg.solve(prior_covariance, F)
    shares, turned = np.linalg.eigh(of_prior)
    shares = np.clip(shares, 0.0, 1.0)  # fraction of the precision due to the prior, along each axis
    squares = (slopes @ turned) ** 2
    rates = np.asarray(betas)[:, None]
    precisions = rates / drawn_at * (1 - shares) + shares
    distances = (rates**2 / precisions) @ squares.T
    return (distances <= chi2(d).ppf(level)).mean(axis=1)
