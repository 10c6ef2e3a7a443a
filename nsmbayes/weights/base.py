"""The interface of weight functions: radial functions of the Mahalanobis distance."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Weight(eqx.Module):
    """A weight w(r) in [0, 1] of the Mahalanobis distance r ≥ 0 of an observation from the robust location.

    Only w² enters the score-matching loss, so a weight computes w² and its derivative.
    Weights compare by value, and are registered (`nsmbayes.serialisation`) so that methods can be saved with them.

    Attributes:
        kind: the name of the weight in saved models.
        bounded: w and its gradient are bounded (Assumption A1 of the paper).
    """

    kind: ClassVar[str]
    bounded: ClassVar[bool] = True

    @abc.abstractmethod
    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) and its derivative d w²/dr for one distance, which may be infinite."""

    def overall(self, r: Float[Array, ""]) -> Float[Array, ""]:
        """The factor of an observation's loss at every noise level, from its distance r before noise; by default 1."""
        return jnp.ones_like(r)

    def for_columns(self, d: int) -> "Weight":
        """The weight for observations of `d` columns, with distances around sqrt(d); by default the weight itself."""
        del d
        return self

    def reaching(self, distance: float) -> "Weight":
        """The weight for a model that draws nearly all observations within `distance`; by default the weight itself."""
        del distance
        return self

    @property
    @abc.abstractmethod
    def decay(self) -> float:
        """The power p in w(r) ~ r^-p for large r; certificates compare it with the growth of the surrogate's score."""

    @property
    def decays(self) -> bool:
        """Whether w(r) tends to 0; otherwise an outlier keeps its influence."""
        return self.decay > 0
