"""A weight of 1 for the bulk of the data that decays like the inverse multiquadric outside it."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from scipy.stats import chi

from nsmbayes._internal import checks
from nsmbayes.serialisation import registered
from nsmbayes.weights.base import Weight
from nsmbayes.weights.imq import imq_squared

_STEP, _MOST_STEPS = 1.5, 4  # factor by which a radius grows in one step, and the largest number of steps


@registered
class PlateauIMQ(Weight):
    """w(r) = (1 + t²)^(-1/ζ) with t = max(r - radius, 0), so w = 1 up to the radius.

    The inverse multiquadric is flat at t = 0, so w² is continuously differentiable at the edge of the plateau, which
    the score-matching loss needs for its term with ∇w². For large r it decays like the inverse multiquadric.

    Args:
        radius: Mahalanobis distance up to which observations keep their full weight.
        zeta: how slowly the weight decays beyond it, ζ > 0.
        cutoff_radius: distance beyond which an observation loses weight at all noise levels; None for no cutoff.
            Noise blurs large distances: at a noise level of 6, an outlier at distance 30 is only 5 away. So the loss of
            an observation beyond the cutoff is also multiplied by (1 + (r - cutoff_radius)²)^(-2/ζ), where r is its
            distance before noise is added. Without noise, noise_levels=(0,), the cutoff has no effect.
        columns: the number of columns for which the radii are meant. Good observations of d columns lie about sqrt(d)
            from the centre. For data with another number of columns, the radius changes so that it contains the same
            share of Gaussian observations, and the cutoff stays at the same distance beyond the radius. If the data
            were compared with a model, both also grow, so that the radius covers nearly all draws of the model. None:
            the radii never change.

    Example:
        >>> from nsmbayes.weights import PlateauIMQ
        >>> weight = PlateauIMQ(radius=2.0, cutoff_radius=12.0, columns=1)
        >>> [round(weight.for_columns(d).radius, 2) for d in (1, 2, 8)]
        [2.0, 2.49, 3.97]
    """

    radius: float = eqx.field(static=True)
    zeta: float = eqx.field(static=True)
    cutoff_radius: float | None = eqx.field(static=True)
    columns: int | None = eqx.field(static=True)
    kind: ClassVar[str] = "plateau-imq"

    def __init__(self, radius: Any = 2.5, zeta: Any = 1.0, cutoff_radius: Any = None, columns: int | None = None):
        self.radius = checks.positive(radius, "radius")
        self.zeta = checks.positive(zeta, "zeta")
        self.cutoff_radius = None if cutoff_radius is None else checks.positive(cutoff_radius, "cutoff_radius")
        self.columns = None if columns is None else checks.integer(columns, "columns", at_least=1)

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = (1 + t²)^(-2/ζ), t = max(r - radius, 0), and its derivative."""
        return imq_squared(jnp.maximum(jnp.asarray(r) - self.radius, 0), self.zeta)

    def overall(self, r: Float[Array, ""]) -> Float[Array, ""]:
        """(1 + t²)^(-2/ζ), t = max(r - cutoff_radius, 0)."""
        if self.cutoff_radius is None:
            return super().overall(r)
        return imq_squared(jnp.maximum(jnp.asarray(r) - self.cutoff_radius, 0), self.zeta)[0]

    def for_columns(self, d: int) -> "PlateauIMQ":
        """The weight with the radii for `d` columns; the weight itself if `columns` is None."""
        if self.columns is None or d == self.columns:
            return self
        outside = chi.sf(self.radius, self.columns)
        # if the share outside rounds to 0, the radius grows as much as the typical distance
        radius = chi.isf(outside, d) if outside > 0 else self.radius + math.sqrt(d) - math.sqrt(self.columns)
        cutoff = None if self.cutoff_radius is None else self.cutoff_radius - self.radius + radius
        return PlateauIMQ(float(radius), self.zeta, cutoff, d)

    def reaching(self, distance: float) -> "PlateauIMQ":
        """The weight with the smallest radius, among four steps, that reaches `distance`; itself if `columns` is None.

        Each radius needs a compilation of its own, so there are only a few steps.

        Example:
            >>> weight = PlateauIMQ(radius=2.0, cutoff_radius=12.0, columns=1)
            >>> [weight.reaching(distance).radius for distance in (1.0, 2.8, 50.0)]
            [2.0, 3.0, 10.125]
        """
        if self.columns is None or distance <= self.radius:
            return self
        steps = min(math.ceil(math.log(distance / self.radius) / math.log(_STEP)), _MOST_STEPS)
        radius = self.radius * _STEP**steps
        cutoff = None if self.cutoff_radius is None else self.cutoff_radius - self.radius + radius
        return PlateauIMQ(radius, self.zeta, cutoff, self.columns)

    @property
    def decay(self) -> float:
        """w(r) ~ r^(-2/ζ)."""
        return 2 / self.zeta
