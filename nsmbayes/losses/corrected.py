"""A loss less a linear term: what a surrogate's error adds to its gradient, as far as simulations tell.

The term does not depend on the observations one by one. So what one of them adds to the loss, and every bound on it,
stays as it was.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import Loss


class CorrectedLoss(Loss):
    """The loss of a data set less theta' g."""

    loss: Loss
    gradient: Float[Array, " d_theta"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """What each observation adds: its loss."""
        return self.loss.each(theta)

    def __call__(self, theta: Float[Array, " d_theta"]) -> Float[Array, ""]:
        """The sum over the observations, less the linear term."""
        return self.loss(theta) - self.gradient @ theta


@double_precision
def corrected(loss: Loss, gradient: Float[np.ndarray, " d_theta"] | None) -> Loss:
    """`loss` less theta' `gradient`, if there is one."""
    return loss if gradient is None else CorrectedLoss(loss, jnp.asarray(gradient))


def corrected_alike(loss: Loss, other: Loss) -> Loss:
    """`loss` with the correction that `other` has."""
    return CorrectedLoss(loss, other.gradient) if isinstance(other, CorrectedLoss) else loss


def uncorrected(loss: Loss) -> Loss:
    """The loss of the observations alone."""
    return loss.loss if isinstance(loss, CorrectedLoss) else loss
