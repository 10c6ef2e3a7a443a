"""The constant weight: no robustness."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes.serialisation import registered
from nsmbayes.weights.base import Weight


@registered
class Constant(Weight):
    """w(r) = 1: plain score matching, without protection against outliers."""

    kind: ClassVar[str] = "constant"

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = 1 and its derivative 0."""
        r = jnp.asarray(r)
        return jnp.ones_like(r), jnp.zeros_like(r)

    @property
    def decay(self) -> float:
        """Zero: the weight does not decay."""
        return 0.0
