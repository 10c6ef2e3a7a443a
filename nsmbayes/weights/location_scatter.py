"""Where the bulk of the observations lies, how it is spread, and the weight of a point measured by it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes import _checks
from nsmbayes.weights.base import Weight

ESTIMATORS = ("mcd", "mad", "sample")
_ROBUST = ("mcd", "mad")


class LocationScatter(eqx.Module):
    """Location ν and scatter Ξ of the observations; they define the Mahalanobis distance of the weights.

    The arrays may carry leading batch axes, over which the methods are to be vmapped.

    Args:
        location: ν, shape (d,).
        scatter: Ξ, symmetric positive definite, shape (d, d).
        factor: the lower Cholesky factor L of Ξ = L Lᵀ.
        inverse: L⁻¹, so that a distance is a product: batched triangular solves can block (`nsmbayes._linalg`).
        estimator: how they were estimated.
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
        """Factor a positive definite scatter, or a batch of them, in float64 whatever JAX's setting is."""
        _checks.choice(estimator, "estimator", ESTIMATORS)
        # Columns in very different units would cost digits if the scatter itself were factored.
        spread = np.sqrt(np.diagonal(scatter, axis1=-2, axis2=-1))
        correlation = scatter / spread[..., :, None] / spread[..., None, :]
        lower = np.linalg.cholesky(correlation)
        inverse = np.tril(np.linalg.inv(lower)) / spread[..., None, :]
        return cls(location, scatter, spread[..., :, None] * lower, inverse, estimator)

    @property
    def is_robust(self) -> bool:
        """Whether a minority of outliers, however far away, leaves location and scatter bounded."""
        return self.estimator in _ROBUST

    @property
    def dim(self) -> int:
        """Number of columns d."""
        return self.location.shape[-1]

    def distance(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, " d"]]:
        """The Mahalanobis distance r of one point and its gradient dr/dx = Ξ⁻¹(x - ν)/r, which is 0 at r = 0.

        Finite x never gives NaN: r may round to infinity, the gradient is finite.
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
    """A vector as direction times its largest entry: squares of the direction neither overflow nor vanish."""
    size = jnp.max(jnp.abs(v))
    return v / jnp.where(size == 0, 1, size), size


def evaluate(
    weight: Weight, location_scatter: LocationScatter, x: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """w²(x) and its gradient ∇ₓ w² at one point; both are finite for every finite x.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from nsmbayes.weights import IMQ, LocationScatter, evaluate
        >>> standard = LocationScatter.from_scatter(np.zeros(2), np.eye(2), "mad")
        >>> w2, gradient = evaluate(IMQ(zeta=2.0), standard, jnp.array([1.0, 0.0]))
        >>> print(f"{w2:.3f} {gradient[0]:.3f}")
        0.500 -0.500
    """
    r, gradient = location_scatter.distance(x)
    w2, slope = weight.squared(r)
    return w2, slope * gradient


@eqx.filter_jit
def evaluate_many(
    weight: Weight, location_scatter: LocationScatter, x: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """`evaluate` for every row of `x`."""
    return jax.vmap(evaluate, (None, None, 0))(weight, location_scatter, x)


@eqx.filter_jit
def whole_many(weight: Weight, location_scatter: LocationScatter, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """What every row of `x` counts as a whole; see `Weight.whole`."""
    return jax.vmap(lambda row: weight.whole(location_scatter.distance(row)[0]))(x)
