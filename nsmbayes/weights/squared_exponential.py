"""The squared exponential weight."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes import _checks
from nsmbayes.weights.base import Weight

# exp(-40²) is zero in both precisions, so a larger distance need not be squared.
_VANISHED = 40.0
# Not zero in single precision, so that it can divide r = 0.
_SHORTEST = 1e-30


class SquaredExponential(Weight):
    """w(r) = exp(-r² / (2 l²)), which falls faster than any power of r.

    Args:
        lengthscale: the Mahalanobis distance l at which w has dropped to exp(-1/2).
    """

    lengthscale: float = eqx.field(static=True)
    kind: ClassVar[str] = "squared-exponential"

    def __init__(self, lengthscale: Any = 2.5):
        self.lengthscale = _checks.positive(lengthscale, "lengthscale")

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = exp(-s²) with s = r/l, and its derivative -2 s/l exp(-s²)."""
        scale = max(self.lengthscale, _SHORTEST)
        s = jnp.minimum(jnp.asarray(r) / scale, _VANISHED)
        w2 = jnp.exp(-(s**2))
        return w2, -2 * s / scale * w2

    @property
    def decay(self) -> float:
        """Infinite: faster than every power."""
        return float("inf")

    def config(self) -> dict[str, str | float | None]:
        """`{"kind": "squared-exponential", "lengthscale": l}`."""
        return {"kind": self.kind, "lengthscale": self.lengthscale}
