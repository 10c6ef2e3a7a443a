"""What a surrogate q(x | theta) must offer: log density and derivatives of log q at one point. Callers vectorise."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float


class Derivatives(NamedTuple):
    """Score and Laplacian of log q(x | theta) in x, in the coordinates y of x = L y.

    With g and H the gradient and Hessian in x: score = L' g, laplacian = tr(L' H L).
    """

    score: Float[Array, "*n p"]
    laplacian: Float[Array, "*n"]


class Frame(NamedTuple):
    """Affine coordinates y of the observations: x = offset + L y, with L the basis."""

    offset: Float[Array, " d_x"]
    basis: Float[Array, "d_x d_x"]


class Surrogate(eqx.Module):
    """A twice differentiable conditional density model q(x | theta), perhaps unnormalised."""

    smoothable: ClassVar[bool] = False

    @abstractmethod
    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of `basis` (the matrix L)."""

    def at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, "*points"] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y, with the work done that they share.

        h is the noise level: the density is that of y + h e, e standard normal. In one dimension it may be given for
        each point. A surrogate that cannot be smoothed (`smoothable` is False) is only ever asked for h = 0.
        """
        del h
        return jax.vmap(lambda y: self.derivatives(theta, frame.offset + frame.basis @ y, frame.basis))


class Density(Surrogate):
    """A surrogate that is normalised."""

    @abstractmethod
    def log_prob(self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(x | theta) at one point, in the user's units."""

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points."""
        return jax.vmap(self.log_prob, (None, 0))(theta, x)

    @abstractmethod
    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """The same for standardised theta and x, without the Jacobian of the standardiser."""

    def training_loss(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """What training minimises on average: by default -log q."""
        return -self.network_log_prob(t, z)
