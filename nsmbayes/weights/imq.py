"""The inverse multiquadric weight of the paper."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes.serialisation import registered
from nsmbayes.weights.base import Weight

# Bounds on the power, so that it is neither 0 nor infinite in single precision and its products with log 1 and log ∞
# are not NaN.
_FLATTEST, _STEEPEST = 1e-30, 1e30


def imq_squared(r: Float[Array, ""], zeta: float | Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(1 + r²)^(-2/ζ) and its derivative -(4/ζ) r/(1 + r²) (1 + r²)^(-2/ζ); ζ as an array can be traced."""
    r = jnp.asarray(r)
    if isinstance(zeta, int | float):
        power = min(max(2 / zeta, _FLATTEST), _STEEPEST)
    else:
        power = jnp.clip(2 / zeta, _FLATTEST, _STEEPEST)
    # For r > 1 everything is written in 1/r: r² overflows from 1e19 on in single precision.
    far = r > 1
    near_r, far_r = jnp.where(far, 0, r), jnp.where(far, r, 1)
    small = jnp.where(far, 1 / far_r, near_r)
    log = jnp.log1p(small**2) + 2 * jnp.log(far_r)
    slope_of_log = 2 * small / (1 + small**2)
    w2 = jnp.exp(-power * log)
    return w2, -power * slope_of_log * w2


@registered
class IMQ(Weight):
    """The inverse multiquadric w(r) = (1 + r²)^(-1/ζ), equation (imq-weight) of the paper.

    Args:
        zeta: how slowly the weight decays, ζ > 0. The robustness guarantee needs ζ ≤ 2 with a mixture density network
            and ζ ≤ 2 / (L + 1) with a masked autoregressive flow of L transforms.

    Example:
        >>> import jax.numpy as jnp
        >>> from nsmbayes.weights import IMQ
        >>> w2, slope = IMQ(zeta=2.0).squared(jnp.asarray(1.0))
        >>> print(f"{w2:.3f} {slope:.3f}")
        0.500 -0.500
    """

    zeta: float = eqx.field(static=True)
    kind: ClassVar[str] = "imq"

    def __init__(self, zeta: Any = 1.0):
        self.zeta = checks.positive(zeta, "zeta")

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = (1 + r²)^(-2/ζ) and its derivative."""
        return imq_squared(r, self.zeta)

    @property
    def decay(self) -> float:
        """w(r) ~ r^(-2/ζ)."""
        return 2 / self.zeta
