"""A loss less a linear term: what a surrogate's error adds to its gradient, as far as simulations tell.

The term does not depend on the observations one by one. So what one of them adds to the loss, and every bound on it,
stays as it was. It is linear around the posterior and bounded elsewhere, so that no prior becomes improper by it.
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
    """b, the most that is ever subtracted."""

    def times(self, n: int) -> "Correction":
        """That of n observations."""
        return self._replace(gradient=tuple(n * g for g in self.gradient), reach=n * self.reach)

    def at(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """What is subtracted at many theta."""
        along = (theta - np.asarray(self.centre)) @ np.asarray(self.gradient)
        return self.reach * np.tanh(along / self.reach)

    def as_numbers(self) -> Float[np.ndarray, " numbers"]:
        """For files."""
        return np.array([*self.gradient, *self.centre, self.reach])

    @classmethod
    def from_numbers(cls, numbers: Float[np.ndarray, " numbers"]) -> "Correction | None":
        """What `as_numbers` was made from, if it is a correction."""
        *both, reach = numbers.tolist()
        d = len(both) // 2
        if len(both) % 2 or not reach > 0:
            return None
        return cls(tuple(both[:d]), tuple(both[d:]), reach)


class CorrectedLoss(Loss):
    """The loss of a data set less a `Correction`."""

    loss: Loss
    gradient: Float[Array, " d_theta"]
    centre: Float[Array, " d_theta"]
    reach: Float[Array, ""]

    @property
    def cheap(self) -> bool:
        """Whether the loss that is corrected is."""
        return self.loss.cheap

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """What each observation adds: its loss."""
        return self.loss.each(theta)

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """The sum over the observations, less the correction."""
        return self.loss(theta) - self.reach * jnp.tanh(self.gradient @ (theta - self.centre) / self.reach)


@double_precision
def corrected(loss: Loss, correction: Correction | None) -> Loss:
    """`loss` less a correction, if there is one."""
    return loss if correction is None else CorrectedLoss(loss, *map(jnp.asarray, map(np.asarray, correction)))


def corrected_alike(loss: Loss, other: Loss) -> Loss:
    """`loss` with the correction that `other` has."""
    return CorrectedLoss(loss, other.gradient, other.centre, other.reach) if isinstance(other, CorrectedLoss) else loss


def uncorrected(loss: Loss) -> Loss:
    """The loss of the observations alone."""
    return loss.loss if isinstance(loss, CorrectedLoss) else loss
