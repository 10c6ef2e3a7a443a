"""Location and scatter of the bulk of the observations, and the Mahalanobis distance they define."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal import checks

ESTIMATORS = ("mcd", "mad", "sample")
_ROBUST = ("mcd", "mad", "guided")
_KNOWN = (*ESTIMATORS, "guided")  # "guided" needs a guide: see `fit_guided`


class LocationScatter(eqx.Module):
    """Location ν and scatter Ξ of the observations; they define the Mahalanobis distance of the weights.

    The arrays may have leading batch axes; call the methods under `vmap` over these.

    Args:
        location: ν, shape (d,).
        scatter: Ξ, symmetric positive definite, shape (d, d).
        factor: the lower Cholesky factor L of Ξ = L Lᵀ.
        inverse: L⁻¹, so that distances need only products; batched triangular solves can deadlock (`_internal.linalg`).
        estimator: the name of the estimator of location and scatter.
    """

    location: Float[Array | np.ndarray, "*batch d"]
    scatter: Float[Array | np.ndarray, "*batch d d"]
    factor: Float[Array | np.ndarray, "*batch d d"]
    inverse: Float[Array | np.ndarray, "*batch d d"]
    estimator: str = eqx.field(static=True)

    @classmethod
    def from_scatter(
        cls, location: Float[np.ndarray, "*batch d"], scatter: Float[np.ndarray, "*batch d d"], estimator: str
    ) -> "LocationScatter":
        """Factorise a positive definite scatter, or a batch of scatters, in float64 for any setting of JAX."""
        checks.choice(estimator, "estimator", _KNOWN)
        # Factorises the correlation matrix: for columns in very different units, a factor of the scatter is inaccurate.
        spread = np.sqrt(np.diagonal(scatter, axis1=-2, axis2=-1))
        correlation = scatter / spread[..., :, None] / spread[..., None, :]
        lower = np.linalg.cholesky(correlation)
        inverse = np.tril(np.linalg.inv(lower)) / spread[..., None, :]
        return cls(location, scatter, spread[..., :, None] * lower, inverse, estimator)

    @property
    def is_robust(self) -> bool:
        """Whether location and scatter stay bounded under a minority of outliers, however far away."""
        return self.estimator in _ROBUST

    @property
    def dim(self) -> int:
        """Number of columns d."""
        return self.location.shape[-1]

    def distance(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, " d"]]:
        """The Mahalanobis distance r of one point and its gradient dr/dx = Ξ⁻¹(x - ν)/r, which is 0 at r = 0.

        Finite x never gives NaN: r may overflow to infinity, the gradient is finite.
        """
        x = jnp.asarray(x)
        location, inverse = jnp.asarray(self.location, x.dtype), jnp.asarray(self.inverse, x.dtype)
        # Halving is exact, and the difference of two halves cannot overflow.
        half, size = _split(x / 2 - location / 2)
        whitened, stretch = _split(inverse @ half)
        at_centre = (size == 0) | (stretch == 0)
        norm = jnp.sqrt(jnp.where(at_centre, 1, jnp.sum(whitened**2)))
        gradient = inverse.T @ (whitened / norm)
        r = 2 * norm * (size * stretch)
        return jnp.where(at_centre, 0, r), jnp.where(at_centre, 0, gradient)


def _split(v: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """A vector divided by its largest absolute entry, and this entry, so that squares do not overflow or underflow."""
    size = jnp.max(jnp.abs(v))
    return v / jnp.where(size == 0, 1, size), size
