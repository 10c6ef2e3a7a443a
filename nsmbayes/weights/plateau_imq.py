"""A weight that trusts the bulk of the data fully and falls like the inverse multiquadric outside it."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes import _checks
from nsmbayes.weights.base import Weight
from nsmbayes.weights.imq import imq_squared


class PlateauIMQ(Weight):
    """w(r) = (1 + t²)^(-1/ζ) with t = max(r - radius, 0), so w = 1 up to the radius.

    The inverse multiquadric is flat at t = 0, so w² is continuously differentiable at the plateau's edge, as
    the term of the score-matching loss with ∇w² needs. Far away it falls like the inverse multiquadric.

    Args:
        radius: Mahalanobis distance up to which observations keep their full weight.
        zeta: how slowly the weight falls beyond it, ζ > 0.
        reach: distance beyond which an observation loses weight as a whole, at all noise levels; None for no such
            distance. Noise blurs what is far: at a level of 6 an outlier at 30 is only 5 away. So what an observation
            counts is also judged before noise is added, by (1 + (r - reach)²)^(-2/ζ) beyond the reach. With
            levels=(0,) there is no noise, and the reach has no effect.
    """

    radius: float = eqx.field(static=True)
    zeta: float = eqx.field(static=True)
    reach: float | None = eqx.field(static=True)
    kind: ClassVar[str] = "plateau-imq"

    def __init__(self, radius: Any = 2.5, zeta: Any = 1.0, reach: Any = None):
        self.radius = _checks.positive(radius, "radius")
        self.zeta = _checks.positive(zeta, "zeta")
        self.reach = None if reach is None else _checks.positive(reach, "reach")

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = (1 + t²)^(-2/ζ), t = max(r - radius, 0), and its derivative."""
        return imq_squared(jnp.maximum(jnp.asarray(r) - self.radius, 0), self.zeta)

    def whole(self, r: Float[Array, ""]) -> Float[Array, ""]:
        """(1 + t²)^(-2/ζ), t = max(r - reach, 0)."""
        if self.reach is None:
            return super().whole(r)
        return imq_squared(jnp.maximum(jnp.asarray(r) - self.reach, 0), self.zeta)[0]

    @property
    def decay(self) -> float:
        """w(r) ~ r^(-2/ζ)."""
        return 2 / self.zeta

    def config(self) -> dict[str, str | float | None]:
        """`{"kind": "plateau-imq", "radius": radius, "zeta": ζ, "reach": reach}`."""
        return {"kind": self.kind, "radius": self.radius, "zeta": self.zeta, "reach": self.reach}
