"""The Gaussian posterior of a quadratic loss and a Gaussian prior (Proposition 1), at any learning rate."""

import numpy as np
from jaxtyping import Float

from nsmbayes.losses.pointwise import Quadratic
from nsmbayes.priors import GaussianPrior


def gaussian_posterior(
    prior: GaussianPrior, total: Quadratic, beta: Float[np.ndarray, "*k"] | float, resolution: float = 0.0
) -> tuple[Float[np.ndarray, "*k d"], Float[np.ndarray, "*k d d"]]:
    """Mean and precision of exp(-beta (theta' A theta + 2 theta' B)) N(prior), for a stack of data sets or of betas.

    With a positive `resolution`, the learning rate differs between directions: see `direction_rates`.
    """
    k = 2 * np.asarray(beta)
    if resolution == 0:
        precision = prior.precision + k[..., None, None] * total.A
        shift = prior.precision @ prior.mean - k[..., None] * total.B
        return np.linalg.solve(precision, shift[..., None])[..., 0], precision
    S, λ, U, b = diagonalise(prior, total)
    k = 2 * direction_rates(np.asarray(beta)[..., None], λ, resolution)
    t = np.einsum("...ij,...j->...i", U, -k * b / (1 + k * λ))
    inverse = np.swapaxes(U, -1, -2) @ np.linalg.inv(S)
    precision = prior.precision + np.swapaxes(inverse, -1, -2) @ ((k * λ)[..., None] * inverse)
    return prior.mean + t @ S.T, precision


def diagonalise(
    prior: GaussianPrior, total: Quadratic
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "*k d"], Float[np.ndarray, "*k d d"], Float[np.ndarray, "*k d"]]:
    """S, λ, U, b so that with theta = prior mean + S U t, the prior is N(0, I) and the loss is sum(λ t^2 + 2 b t)."""
    S = np.linalg.cholesky(prior.covariance)
    λ, U = np.linalg.eigh(S.T @ total.A @ S)
    b = np.einsum("...ij,...i->...j", U, (total.B + total.A @ prior.mean) @ S)
    return S, np.maximum(λ, 0), U, b  # A is a sum of squares: values below zero are rounding errors


def direction_rates(
    beta: Float[np.ndarray, "*k"] | float, λ: Float[np.ndarray, "*m d"], resolution: float
) -> Float[np.ndarray, "*n d"]:
    """The learning rate in each direction t of `diagonalise`.

    It is beta, or less if otherwise the standard deviation were smaller than `resolution` times the prior's.
    """
    if resolution == 0:
        return np.broadcast_to(beta, np.broadcast_shapes(np.shape(beta), λ.shape))
    most = resolution**-2 - 1  # largest 2 beta λ, the precision in units of the prior's
    return np.minimum(beta, most / np.maximum(2 * λ, 1e-300 * max(most, 1.0)))  # no bound if λ is zero
