"""Choices of the user on the page: prior, decay of the weight, learning rate, fraction of trimmed rows."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes.priors import GaussianPrior
from nsmbayes.weights import IMQ, PlateauIMQ, Weight
from nsmbayes.weights.imq import imq_squared


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The values of the sliders.

    Example:
        >>> import nsmbayes as nsm
        >>> from nsmbayes.explore import Choices
        >>> choices = Choices(beta=1.0, zeta=None, shift=(1.0,), width=(0.5,), trimmed=0.0)
        >>> prior = choices.prior(nsm.GaussianPrior([0.0], [4.0]))
        >>> prior.mean.tolist(), prior.std.tolist()
        ([2.0], [1.0])
    """

    beta: float
    """The learning rate."""
    zeta: float | None
    """Constant of the weight's decay: larger is slower; None for a weight without this constant."""
    shift: tuple[float, ...]
    """Shift of the prior mean of each parameter, in prior standard deviations."""
    width: tuple[float, ...]
    """Factor of the prior standard deviation of each parameter."""
    trimmed: float
    """The fraction of the rows, those farthest from the robust location, that the trimmed comparison leaves out."""

    def prior(self, own: GaussianPrior) -> GaussianPrior:
        """The model's own prior, shifted and scaled; the same object if there is no change."""
        if not any(self.shift) and all(each == 1 for each in self.width):
            return own
        width = np.asarray(self.width)
        return GaussianPrior(own.mean + np.asarray(self.shift) * own.std, width[:, None] * own.covariance * width)

    def weight(self, own: Weight) -> Weight:
        """The model's own weight, with the chosen zeta."""
        if self.zeta is None or zeta_of(own) == self.zeta:
            return own
        return dataclasses.replace(own, zeta=self.zeta)

    def live_weight(self, own: Weight) -> Weight:
        """The model's own weight with the chosen zeta, in a form that avoids a compilation for each zeta."""
        if self.zeta is None:
            return own
        if isinstance(own, PlateauIMQ):
            return LiveZeta(jnp.asarray(self.zeta), own.radius, own.cutoff_radius)
        return LiveZeta(jnp.asarray(self.zeta), 0.0, None)


def zeta_of(weight: Weight) -> float | None:
    """The constant zeta of a weight that the page can change, or None."""
    return weight.zeta if isinstance(weight, IMQ | PlateauIMQ) else None


class LiveZeta(Weight):
    """`PlateauIMQ`, or with radius 0 `IMQ`, with a traced zeta, since a slider moves through many values."""

    zeta: Float[Array, ""]
    radius: float = eqx.field(static=True)
    cutoff_radius: float | None = eqx.field(static=True)
    kind: ClassVar[str] = "live-zeta"

    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) = (1 + t²)^(-2/ζ), t = max(r - radius, 0), and its derivative."""
        return imq_squared(jnp.maximum(jnp.asarray(r) - self.radius, 0), self.zeta)

    def overall(self, r: Float[Array, ""]) -> Float[Array, ""]:
        """(1 + t²)^(-2/ζ), t = max(r - cutoff_radius, 0)."""
        if self.cutoff_radius is None:
            return super().overall(r)
        return imq_squared(jnp.maximum(jnp.asarray(r) - self.cutoff_radius, 0), self.zeta)[0]

    @property
    def decay(self) -> float:
        """w(r) ~ r^(-2/ζ)."""
        return 2 / float(self.zeta)
