"""No weight at all."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes.weights.base import Weight


class Constant(Weight):
    """w(r) = 1: plain score matching, which outliers can move as they like."""

    kind: ClassVar[str] = "constant"

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = 1 and its derivative 0."""
        r = jnp.asarray(r)
        return jnp.ones_like(r), jnp.zeros_like(r)

    @property
    def decay(self) -> float:
        """Zero: it does not fall."""
        return 0.0

    def config(self) -> dict[str, str | float | None]:
        """`{"kind": "constant"}`."""
        return {"kind": self.kind}
