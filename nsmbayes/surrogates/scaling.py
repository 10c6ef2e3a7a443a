"""Elementwise standardisation of network inputs: z = f((x - centre) / scale), where f is the identity or asinh."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.constants import GAUSSIAN_MAD
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError

KINDS = ("robust", "robust-asinh", "zscore", "none")

SQUASHED = 3.0  # the bound of squashed parameters
_FAR = 1e30  # inputs are clipped here, where every tanh unit is saturated, so that affine maps never compute inf - inf


def squash(t: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """3 tanh(t / 3): nearly the identity over the bulk of standardised parameters, and bounded."""
    return SQUASHED * jnp.tanh(t / SQUASHED)


class Standardiser(eqx.Module):
    """z = (x - centre) / scale, or asinh of this for very heavy tails, where a linear map puts most data near zero."""

    centre: Float[Array, " d"]
    scale: Float[Array, " d"]
    asinh: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The standardised values of x."""
        s = jnp.clip((x - self.centre) / self.scale, -_FAR, _FAR)
        return jnp.arcsinh(s) if self.asinh else s

    @double_precision
    def standardise(self, x: Float[np.ndarray, "*batch d"]) -> Float[np.ndarray, "*batch d"]:
        """The standardised values of a NumPy array, computed in double precision."""
        return np.asarray(self(jnp.asarray(x)))

    def slopes(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """First and second derivative of z with respect to x, elementwise, at one point."""
        first = 1 / self.scale
        if not self.asinh:
            return first, jnp.zeros_like(first)
        s = jnp.clip((x - self.centre) / self.scale, -_FAR, _FAR)
        root = jnp.hypot(1.0, s)
        return first / root, -(first**2) * (s / root) / root**2

    def log_jacobian_slopes(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """First and second derivative of log dz/dx, elementwise: the Jacobian term of a density in x."""
        if not self.asinh:
            return jnp.zeros_like(self.scale), jnp.zeros_like(self.scale)
        s = jnp.clip((x - self.centre) / self.scale, -_FAR, _FAR)
        root = jnp.hypot(1.0, s)  # log dz/dx = -log(scale) - log(1 + s^2) / 2
        ratio = s / root
        return -(ratio / root) / self.scale, (ratio**2 - 1 / root**2) / root**2 / self.scale**2


@double_precision
def fit_standardiser(x: Float[np.ndarray, "m d"], kind: str, name: str) -> Standardiser:
    """The standardiser of the columns of `x`; `name` is the name of `x` in error messages.

    "robust" uses the median and the MAD (the standard deviation if more than half the entries of a column are tied),
    "robust-asinh" adds asinh, "zscore" uses the mean and standard deviation, "none" is the identity.
    """
    checks.choice(kind, "scaling", KINDS)
    if kind == "none":
        return Standardiser(jnp.zeros(x.shape[1]), jnp.ones(x.shape[1]), asinh=False)
    std = x.std(axis=0)
    constant = np.flatnonzero(std <= 1e-14 * np.abs(x).max(axis=0))
    if constant.size:
        raise InputError(
            f"`{name}` has constant columns ({', '.join(map(str, constant))}): they carry no information and have no "
            "scale. Remove them."
        )
    if kind == "zscore":
        centre, scale = x.mean(axis=0), std
    else:
        centre = np.median(x, axis=0)
        robust_std = np.median(np.abs(x - centre), axis=0) / GAUSSIAN_MAD
        scale = np.where(robust_std > 0, robust_std, std)
    return Standardiser(jnp.asarray(centre), jnp.asarray(scale), asinh=kind == "robust-asinh")
