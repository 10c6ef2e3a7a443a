"""The exponential family of assumption A3: q(x | theta) proportional to exp(T(x)' theta + b(x)).

T and b are bounded networks. This makes the posterior robust, but q cannot be normalised on R^d. So only the
derivatives of log q are available: there is no density to evaluate or to sample from.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes.surrogates.base import Derivatives, Surrogate
from nsmbayes.surrogates.scaling import Standardiser

_BIAS = 0.01


class TanhNetwork(eqx.Module):
    """f(z) = V tanh(W z + c), one hidden layer, without an output bias: only derivatives of f are used."""

    W: Float[Array, "hidden d_in"]
    c: Float[Array, " hidden"]
    V: Float[Array, "d_out hidden"]

    def hidden_derivatives(
        self, z: Float[Array, " d_in"], D: Float[Array, "d_in p"], curvature: Float[Array, " d_in"]
    ) -> Float[Array, "hidden p+1"]:
        """Derivatives in y of h = tanh(W z(y) + c), where D = dz/dy and curvature = Laplacian of z.

        The first p columns are the gradient, the last is the Laplacian, so that one product applies a linear map to
        both.
        """
        J = self.W @ D
        h = jnp.tanh(self.W @ z + self.c)
        bend = self.W @ curvature - 2 * h * (J**2).sum(axis=1)
        return (1 - h**2)[:, None] * jnp.concatenate([J, bend[:, None]], axis=1)

    def slopes(
        self, v: Float[Array, " hidden"], z: Float[Array, " d_in"]
    ) -> tuple[Float[Array, " d_in"], Float[Array, " d_in"]]:
        """First and second derivatives of v' tanh(W z + c) in each input."""
        h = jnp.tanh(self.W @ z + self.c)
        v = v * (1 - h**2)
        return v @ self.W, -2 * (v * h) @ self.W**2


def init_tanh_network(key: PRNGKeyArray, d_in: int, hidden: int, d_out: int) -> TanhNetwork:
    """An untrained network with Glorot-uniform weights and small positive biases."""
    glorot = jax.nn.initializers.glorot_uniform()
    key_w, key_v = jax.random.split(key)
    return TanhNetwork(W=glorot(key_w, (d_in, hidden)).T, c=jnp.full(hidden, _BIAS), V=glorot(key_v, (hidden, d_out)).T)


class FamilyDerivatives(NamedTuple):
    """Derivatives of T and b at one point, in the coordinates y of x = L y (see `Derivatives`)."""

    grad_T: Float[Array, "*n d_theta p"]
    lap_T: Float[Array, "*n d_theta"]
    grad_b: Float[Array, "*n p"]
    lap_b: Float[Array, "*n"]


class ExponentialFamily(Surrogate):
    """q(x | theta) ~ exp(T(z)' t + b(z)) |dz/dx|, with z and t the standardised x and theta.

    Standardising theta is an affine map, so the family stays linear in theta.
    """

    T: TanhNetwork
    b: TanhNetwork
    scale_x: Standardiser
    scale_theta: Standardiser

    def __check_init__(self):
        if self.scale_theta.asinh:
            raise ValueError("theta must be standardised by an affine map: the family is linear in theta.")

    def network_derivatives(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Derivatives:
        """Score and Laplacian in the network's coordinates, for training by score matching."""
        slope, second = _of_both(self, t, z)
        return Derivatives(slope, second.sum())

    def family_derivatives(self, x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]) -> FamilyDerivatives:
        """Derivatives of T and b as functions of x, for theta in the user's units."""
        slope, bend = self.scale_x.slopes(x)
        D = slope[:, None] * basis
        squares = (basis**2).sum(axis=1)
        z, curvature = self.scale_x(x), bend * squares
        V = self.T.V / self.scale_theta.scale[:, None]  # T(z)' t = (V h)' (theta - centre): the centre goes into b
        of_T = jnp.vstack([V, -self.scale_theta.centre @ V]) @ self.T.hidden_derivatives(z, D, curvature)
        of_b = of_T[-1] + (self.b.V @ self.b.hidden_derivatives(z, D, curvature))[0]
        jacobian_slope, jacobian_bend = self.scale_x.log_jacobian_slopes(x)
        return FamilyDerivatives(
            grad_T=of_T[:-1, :-1],
            lap_T=of_T[:-1, -1],
            grad_b=of_b[:-1] + jacobian_slope @ basis,
            lap_b=of_b[-1] + jacobian_bend @ squares,
        )

    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]
    ) -> Derivatives:
        """Score and Laplacian of log q(x | theta) along the columns of `basis`."""
        family = self.family_derivatives(x, basis)
        return Derivatives(theta @ family.grad_T + family.grad_b, theta @ family.lap_T + family.lap_b)


class NoisyFamily(eqx.Module):
    """The exponential families of x + noise, for independent Gaussian noise of any size in each column of x.

    The inputs of T and b are z / sqrt(1 + h^2), which has the same scale for all noise levels, and log h, with h the
    noise in units of z. For a fixed h, this is again a network of z: h only changes its weights and biases.
    """

    T: TanhNetwork
    b: TanhNetwork
    scale_x: Standardiser
    scale_theta: Standardiser

    def __check_init__(self):
        if self.scale_x.asinh:
            raise ValueError("x must be standardised by an affine map: noise on x is not Gaussian after asinh.")

    def with_noise(self, h: Float[Array, " d_x"]) -> ExponentialFamily:
        """The family of x + scale_x.scale * h * e, with e standard normal."""
        shrink, log_h = _noise_inputs(h)

        def fold(network: TanhNetwork) -> TanhNetwork:
            of_z, of_noise = jnp.split(network.W, 2, axis=1)
            return TanhNetwork(of_z * shrink, network.c + of_noise @ log_h, network.V)

        return ExponentialFamily(fold(self.T), fold(self.b), self.scale_x, self.scale_theta)

    def network_derivatives(
        self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"], h: Float[Array, " d_x"]
    ) -> Derivatives:
        """Score and Laplacian at noise h in the coordinates z / h, for training by score matching."""
        shrink, log_h = _noise_inputs(h)
        slope, second = _of_both(self, t, jnp.concatenate([shrink * z, log_h]))
        d = len(z)
        return Derivatives(h * shrink * slope[:d], (h * shrink) ** 2 @ second[:d])


def _noise_inputs(h: Float[Array, " d_x"]) -> tuple[Float[Array, " d_x"], Float[Array, " d_x"]]:
    """The factor of z, and the additional inputs of the networks."""
    return 1 / jnp.sqrt(1 + h**2), jnp.log(h) / 2


def _of_both(
    family: ExponentialFamily | NoisyFamily, t: Float[Array, " d_theta"], inputs: Float[Array, " d_in"]
) -> tuple[Float[Array, " d_in"], Float[Array, " d_in"]]:
    """First and second derivatives of T' t + b in each input, by products that stay matrix products under vmap."""
    of_T, of_b = family.T.slopes(t @ family.T.V, inputs), family.b.slopes(family.b.V[0], inputs)
    return of_T[0] + of_b[0], of_T[1] + of_b[1]


def init_exponential_family(
    key: PRNGKeyArray, scale_x: Standardiser, scale_theta: Standardiser, *, hidden: int
) -> ExponentialFamily:
    """An untrained family with one hidden layer of `hidden` units in each of T and b."""
    return ExponentialFamily(*_init_networks(key, len(scale_x.scale), scale_x, scale_theta, hidden))


def init_noisy_family(
    key: PRNGKeyArray, scale_x: Standardiser, scale_theta: Standardiser, *, hidden: int
) -> NoisyFamily:
    """An untrained family of noisy x, with one hidden layer of `hidden` units in each of T and b."""
    return NoisyFamily(*_init_networks(key, 2 * len(scale_x.scale), scale_x, scale_theta, hidden))


def _init_networks(key: PRNGKeyArray, d_in: int, scale_x: Standardiser, scale_theta: Standardiser, hidden: int):
    key_T, key_b = jax.random.split(key)
    T = init_tanh_network(key_T, d_in, hidden, len(scale_theta.scale))
    return T, init_tanh_network(key_b, d_in, hidden, 1), scale_x, scale_theta
