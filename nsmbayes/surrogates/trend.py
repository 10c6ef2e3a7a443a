"""A linear trend: the part of x that is linear in theta with Gaussian noise, fitted in closed form before training.

With many parameters and columns, a network learns even a linear mean only up to the noise of its thousands of weights.
With a trend, the network only has to learn the residuals.
"""

import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.precision import double_precision

BOUND = 60.0  # bound on each standardised parameter in the trend, which is linear over the bulk of the prior


class Trend(eqx.Module):
    """The map r -> z = intercept + slope s(t) + L r, with s(t) = bound tanh(t / bound), in standardised coordinates.

    The trend is fixed during training, and the network models r.
    """

    intercept: Float[Array, " d_x"]
    slope: Float[Array, "d_x d_theta"]
    factor: Float[Array, "d_x d_x"]
    inverse: Float[Array, "d_x d_x"]
    bound: Float[Array, ""]

    @classmethod
    def blank(cls, d_x: int, d_theta: int) -> Self:
        """An identity map, i.e. no trend; used as a template for loading saved numbers."""
        return cls(jnp.zeros(d_x), jnp.zeros((d_x, d_theta)), jnp.eye(d_x), jnp.eye(d_x), jnp.asarray(BOUND))

    def at(self, t: Float[Array, " d_theta"]) -> Float[Array, " d_x"]:
        """The value of the trend (at r = 0) for standardised theta."""
        return self.intercept + self.slope @ bounded(t, self.bound)

    @double_precision
    def losses(self, t: Float[np.ndarray, "m d_theta"], z: Float[np.ndarray, "m d_x"]) -> Float[np.ndarray, " m"]:
        """-log of the Gaussian density of the trend alone, with standard normal r."""
        around = (z - jax.vmap(self.at)(jnp.asarray(t))) @ self.inverse.T
        return np.asarray(0.5 * (around**2).sum(axis=1) + self.log_det + 0.5 * z.shape[1] * math.log(2 * math.pi))

    @property
    def log_det(self) -> Float[Array, ""]:
        """log det L."""
        return jnp.log(jnp.diagonal(self.factor)).sum()


def bounded(t: Float[Array, "*batch d_theta"], bound: Float[Array, ""] | float) -> Float[Array, "*batch d_theta"]:
    """bound tanh(t / bound), which is nearly t for small t."""
    return bound * jnp.tanh(t / bound)


@double_precision
def fit_trend(t: Float[np.ndarray, "m d_theta"], z: Float[np.ndarray, "m d_x"]) -> Trend:
    """The trend fitted by least squares.

    Linearly dependent columns get a little variance, so that L is regular.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.surrogates import fit_trend
        >>> rng = np.random.default_rng(0)
        >>> t = rng.standard_normal((500, 2))
        >>> trend = fit_trend(t, t @ np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]) + rng.standard_normal((500, 3)))
        >>> bool(abs(np.asarray(trend.slope) - [[1, 0], [0, 1], [2, 1]]).max() < 0.2), trend.factor.shape
        (True, (3, 3))
    """
    regressors = np.column_stack([np.ones(len(t)), np.asarray(bounded(jnp.asarray(t), BOUND))])
    coefficients = np.linalg.lstsq(regressors, z, rcond=None)[0]
    residuals = z - regressors @ coefficients
    covariance = residuals.T @ residuals / len(z)
    L = np.linalg.cholesky(covariance + 1e-9 * np.diag(np.diagonal(covariance) + 1e-9))
    parts = (coefficients[0], coefficients[1:].T, L, np.tril(np.linalg.inv(L)), BOUND)
    return Trend(*map(jnp.asarray, parts))
