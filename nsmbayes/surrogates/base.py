"""What a surrogate q(x | theta) must offer: the derivatives of log q at one point."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float


class Derivatives(NamedTuple):
    """Score and Laplacian of log q(x | theta) in x, in the coordinates y of x = L y.

    With g and H the gradient and Hessian in x: score = L' g, laplacian = tr(L' H L).
    """

    score: Float[Array, " p"]
    laplacian: Float[Array, ""]


class Surrogate(eqx.Module):
    """A twice differentiable conditional density model q(x | theta), for one point. Callers vectorise."""

    @abstractmethod
    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of `basis` (the matrix L)."""
