"""The interface of surrogates q(x | theta): log density and its derivatives at one point, for callers to vectorise."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from nsmbayes.errors import InputError


class Derivatives(NamedTuple):
    """Score and Laplacian of log q(x | theta) in x, in the coordinates y of x = L y.

    With g and H the gradient and Hessian in x: score = L' g, laplacian = tr(L' H L).
    """

    score: Float[Array, "*n p"]
    laplacian: Float[Array, "*n"]


class Moments(NamedTuple):
    """Mean and covariance of x given theta."""

    mean: Float[Array, " d_x"]
    covariance: Float[Array, "d_x d_x"]


class Frame(NamedTuple):
    """Affine coordinates y of the observations: x = offset + L y, with L the basis."""

    offset: Float[Array, " d_x"]
    basis: Float[Array, "d_x d_x"]


class Surrogate(eqx.Module):
    """A twice differentiable conditional density model q(x | theta), possibly unnormalised."""

    smoothable: ClassVar[bool] = False

    @abstractmethod
    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of `basis` (the matrix L)."""

    def derivatives_at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, ""] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y; the work that does not depend on y is done once.

        h is the noise level: the density is that of y + h e, with e standard normal. A surrogate that cannot be
        smoothed (`smoothable` is False) is only called with h = 0.
        """
        del h
        return jax.vmap(lambda y: self.derivatives(theta, frame.offset + frame.basis @ y, frame.basis))


class Density(Surrogate):
    """A surrogate that is a normalised density."""

    @abstractmethod
    def log_prob(self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(x | theta) at one point, in the user's units."""

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points."""
        return jax.vmap(self.log_prob, (None, 0))(theta, x)

    @abstractmethod
    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) for standardised theta and x, without the Jacobian of the standardiser."""

    def moments(self, theta: Float[Array, " d_theta"]) -> Moments | None:
        """Mean and covariance of x given theta if they have a closed form, otherwise None; by default None."""
        del theta
        return None

    def draw(
        self, theta: Float[np.ndarray, "k d_theta"], each: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "k each d_x"]:
        """`each` draws of x at every theta; an `InputError` if the density cannot be sampled, which is the default."""
        del theta, each, rng
        raise InputError(f"A {type(self).__name__} cannot be drawn from. Pass `simulator`.")

    def training_loss(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """The loss of one simulation in training: by default -log q."""
        return -self.network_log_prob(t, z)
