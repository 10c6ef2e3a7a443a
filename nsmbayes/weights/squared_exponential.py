"""The squared exponential weight."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes.serialisation import registered
from nsmbayes.weights.base import Weight

# exp(-40²) is zero in both precisions: larger distances are clipped, so that their squares do not overflow.
_VANISHED = 40.0
# The smallest length scale: not zero in single precision, so that r = 0 can be divided by it.
_SHORTEST = 1e-30


@registered
class SquaredExponential(Weight):
    """w(r) = exp(-r² / (2 l²)), which decays faster than any power of r.

    Args:
        lengthscale: the Mahalanobis distance l at which w has dropped to exp(-1/2).
    """

    lengthscale: float = eqx.field(static=True)
    kind: ClassVar[str] = "squared-exponential"

    def __init__(self, lengthscale: Any = 2.5):
        self.lengthscale = checks.positive(lengthscale, "lengthscale")

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = exp(-s²) with s = r/l, and its derivative -2 s/l exp(-s²)."""
        scale = max(self.lengthscale, _SHORTEST)
        s = jnp.minimum(jnp.asarray(r) / scale, _VANISHED)
        w2 = jnp.exp(-(s**2))
        return w2, -2 * s / scale * w2

    @property
    def decay(self) -> float:
        """Infinity: the weight decays faster than any power."""
        return float("inf")
