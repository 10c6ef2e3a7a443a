"""The Gaussian kernel k(x, y) = exp(-|x - y|^2 / (2 l^2)), and the distances between samples that are made of it."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def gram(x: Float[Array, "n d"], y: Float[Array, "m d"], lengthscale: Float[Array, ""] | float) -> Float[Array, "n m"]:
    """k(x_i, y_j)."""
    squared = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)
    return jnp.exp(-squared / (2 * lengthscale**2))


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

    S(P, x) = E k(Y, Y') - 2 E k(Y, x), so that for weights that add up to one this is the squared maximum mean
    discrepancy between P and the weighted observations, but for a term without P.
    """
    within = mean_without_diagonal(gram(simulated, simulated, lengthscale))
    return weights.sum() * within - 2 * weights @ gram(x, simulated, lengthscale).mean(axis=1)


def mmd2(x: Float[Array, "n d"], y: Float[Array, "m d"], lengthscale: Float[Array, ""] | float) -> Float[Array, ""]:
    """Squared maximum mean discrepancy of two samples, all pairs included (the V-statistic): never negative."""
    return gram(x, x, lengthscale).mean() - 2 * gram(x, y, lengthscale).mean() + gram(y, y, lengthscale).mean()
