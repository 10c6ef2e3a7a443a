"""A loss minus a linear term, which estimates from simulations how much the surrogate's error adds to its gradient.

The term does not depend on single observations. So the contribution of one observation to the loss, and every bound on
it, stay the same. The term is linear around the posterior and bounded elsewhere, so it makes no prior improper.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import Loss


class Correction(NamedTuple):
    """The term b tanh(g' (theta - c) / b), which is g' (theta - c) around c."""

    gradient: tuple[float, ...]
    centre: tuple[float, ...]
    reach: float
    """b, the largest value that can be subtracted."""

    def times(self, n: int) -> "Correction":
        """The correction for n observations, given that for one."""
        return self._replace(gradient=tuple(n * g for g in self.gradient), reach=n * self.reach)

    def at(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """The value to subtract at k thetas."""
        along = (theta - np.asarray(self.centre)) @ np.asarray(self.gradient)
        return self.reach * np.tanh(along / self.reach)

    def as_numbers(self) -> Float[np.ndarray, " numbers"]:
        """The correction as one vector, for saving."""
        return np.array([*self.gradient, *self.centre, self.reach])

    @classmethod
    def from_numbers(cls, numbers: Float[np.ndarray, " numbers"]) -> "Correction | None":
        """The correction from the vector of `as_numbers`; None if the vector is not valid."""
        *both, reach = numbers.tolist()
        d = len(both) // 2
        if len(both) % 2 or not reach > 0:
            return None
        return cls(tuple(both[:d]), tuple(both[d:]), reach)


class CorrectedLoss(Loss):
    """The loss of a data set minus a `Correction`."""

    loss: Loss
    gradient: Float[Array, " d_theta"]
    centre: Float[Array, " d_theta"]
    reach: Float[Array, ""]

    @property
    def cheap(self) -> bool:
        """Whether the uncorrected loss is cheap; see `Loss.cheap`."""
        return self.loss.cheap

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation, without the correction."""
        return self.loss.each(theta)

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """The sum over the observations, minus the correction."""
        return self.loss(theta) - self.reach * jnp.tanh(self.gradient @ (theta - self.centre) / self.reach)


@double_precision
def corrected(loss: Loss, correction: Correction | None) -> Loss:
    """`loss` minus `correction`; `loss` itself if that is None."""
    return loss if correction is None else CorrectedLoss(loss, *map(jnp.asarray, map(np.asarray, correction)))


def corrected_alike(loss: Loss, other: Loss) -> Loss:
    """`loss` with the correction of `other`, if `other` has one."""
    return CorrectedLoss(loss, other.gradient, other.centre, other.reach) if isinstance(other, CorrectedLoss) else loss


def uncorrected(loss: Loss) -> Loss:
    """`loss` without its correction, if it has one."""
    return loss.loss if isinstance(loss, CorrectedLoss) else loss
