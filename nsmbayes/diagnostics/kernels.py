"""The Gaussian kernel k(x, y) = exp(-|x - y|^2 / (2 l^2)), its length-scale l, and distances based on it."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.distance import pdist

from nsmbayes.errors import InputError

_MEDIAN_POINTS = 2000  # sufficient for the median of pairwise distances; more points would only need more memory
_CHUNK = 10  # number of data sets whose kernel values fit into the processor's cache


def gram(x: Float[Array, "n d"], y: Float[Array, "m d"], lengthscale: Float[Array, ""] | float) -> Float[Array, "n m"]:
    """The Gram matrix k(x_i, y_j)."""
    squared = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)
    return jnp.exp(-squared / (2 * lengthscale**2))


def mean_kernel(
    x: Float[Array, "n d"], y: Float[Array, "m d"], lengthscale: Float[Array, ""] | float
) -> Float[Array, ""]:
    """The mean of k(x_i, y_j) over all pairs."""
    return gram(x, y, lengthscale).mean()


def mean_without_diagonal(K: Float[Array, "n n"]) -> Float[Array, ""]:
    """The mean over pairs i != j of a Gram matrix: an unbiased estimate of E k(X, X')."""
    n = len(K)
    return (K.sum() - jnp.trace(K)) / (n * (n - 1))


def kernel_score(
    simulated: Float[Array, "m d"],
    x: Float[Array, "n d"],
    weights: Float[Array, " n"],
    lengthscale: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """sum_i w_i S(P, x_i) of observations, with an unbiased estimate of the kernel score from draws of P.

    S(P, x) = E k(Y, Y') - 2 E k(Y, x). For weights that sum to one this is the squared maximum mean discrepancy between
    P and the weighted observations, up to a term that does not depend on P.
    """
    within = mean_without_diagonal(gram(simulated, simulated, lengthscale))
    return weights.sum() * within - 2 * weights @ gram(x, simulated, lengthscale).mean(axis=1)


def mmd2(x: Float[Array, "n d"], y: Float[Array, "m d"], lengthscale: Float[Array, ""] | float) -> Float[Array, ""]:
    """Squared maximum mean discrepancy of two samples, with all pairs (the V-statistic); never negative."""
    return mean_kernel(x, x, lengthscale) - 2 * mean_kernel(x, y, lengthscale) + mean_kernel(y, y, lengthscale)


def pairwise_mmd2(
    x: Float[np.ndarray, "m n d"], targets: Float[np.ndarray, "k n d"], lengthscale: float
) -> Float[np.ndarray, "m k"]:
    """`mmd2` between every data set and every target, in single precision.

    In NumPy, because its exponential is several times faster here than that of JAX on a CPU.
    """
    centre = x.mean(axis=(0, 1))
    x, targets = (((sets - centre) / lengthscale).astype(np.float32) for sets in (x, targets))
    within = [np.array([_mean_kernels(each, each[None])[0] for each in sets]) for sets in (x, targets)]
    across = np.stack([_mean_kernels(each, targets) for each in x])
    return np.maximum(within[0][:, None] - 2 * across + within[1], 0.0)


def _mean_kernels(x: Float[np.ndarray, "n d"], targets: Float[np.ndarray, "k n d"]) -> Float[np.ndarray, " k"]:
    """mean_ab k(x_a, y_b) for each target y, with l = 1."""
    means = []
    for start in range(0, len(targets), _CHUNK):
        chunk = targets[start : start + _CHUNK].reshape(-1, x.shape[1])
        squared = np.zeros((len(x), len(chunk)), np.float32)
        for a, b in zip(x.T, chunk.T, strict=True):
            difference = a[:, None] - b
            difference *= difference
            squared += difference
        squared *= -0.5
        np.exp(squared, out=squared)
        means.append(squared.mean(axis=0, dtype=np.float64).reshape(-1, targets.shape[1]).mean(axis=1))
    return np.concatenate(means)


def median_lengthscale(y: Float[np.ndarray, "n d"]) -> float:
    """The median heuristic: sqrt(median |y_i - y_j|^2 / 2), over pairs i < j."""
    return float(np.sqrt(np.median(pdist(y[:: max(1, len(y) // _MEDIAN_POINTS)], "sqeuclidean")) / 2))


def kernel_lengthscale(y: Float[np.ndarray, "n d"], name: str, *, given: float | None = None) -> float:
    """Return the length-scale `given`, or by default the median heuristic on `y`; error messages call `y` `name`."""
    if given is not None:
        return given
    scale = median_lengthscale(y)
    if scale == 0:
        raise InputError(
            f"`{name}` is constant, or so tied that the median distance between its rows is zero: the kernel would "
            "have no width. Pass `lengthscale`."
        )
    return scale
