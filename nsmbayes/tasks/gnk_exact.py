"""The quantile function of the g-and-k distribution, and its exact density, by numerical inversion.

A surrogate should learn this density. The functions are for ONE point, and JAX can trace them; call them with 64-bit
floats. The symbols are those of `nsmbayes.tasks.gnk`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_ITERATIONS = 16
_SLACK = 1e-9  # how far Newton's method may leave its bracket
_STEP, _NODES = 1e-3, 8500  # step and number of nodes on each side of 0, for integrals over the standard normal u

C = 0.8
"""Bounds the skewness. Below about 0.83, G increases for every g and every k >= 0."""


def quantile(theta: Float[Array, "4"], u: Float[Array, ""]) -> Float[Array, ""]:
    """The quantile function G(u) of ONE standard normal u, at theta = (A, log B, g, log k).

    Example:
        >>> print(quantile(jnp.array([1.0, 0.5, 1.0, -1.0]), jnp.array(0.0)))
        1.0
    """
    A, log_B, g, log_k = theta
    k = jnp.exp(log_k)
    return A + jnp.exp(log_B + k * jnp.log1p(u * u)) * (1 + C * jnp.tanh(g * u / 2)) * u


@jax.custom_jvp
def standard_normal_quantile(theta: Float[Array, "4"], x: Float[Array, ""]) -> Float[Array, ""]:
    """The u at which G(u) = x, so that the distribution function at x is Phi(u).

    With z = (x - A) / B and v = log|u| the equation is
    `F(v) = log(1 + c tanh(sign(z) g e^v / 2)) + k log(1 + e^(2v)) + v - log|z| = 0`. F increases, and bounds on its
    first two terms bracket the root within log((1 + c) / (1 - c)) + k log 2, however large x is. Newton's method, with
    a bisection step whenever it would leave the bracket, then needs about twelve steps; more only for k > 100.
    Derivatives of any order follow from the implicit function theorem.
    """
    A, log_B, g, log_k = theta
    k = jnp.exp(log_k)
    difference = x - A
    side = jnp.sign(difference)
    log_z = jnp.log(jnp.where(side == 0, 1.0, jnp.abs(difference))) - log_B

    def unbend(r):  # solves v + 2 k max(v, 0) = r
        return jnp.where(r > 0, r / (1 + 2 * k), r)

    # For extreme x the root lies at an end of the bracket, where rounding could push Newton's method outside.
    low = unbend(log_z - jnp.log1p(C) - k * jnp.log(2.0)) - 0.1
    high = unbend(log_z - jnp.log1p(-C)) + 0.1

    def step(_, bracket):
        low, high, v = bracket
        half = side * g * jnp.exp(v) / 2
        t = jnp.tanh(half)
        F = jnp.log1p(C * t) + k * jnp.logaddexp(0.0, 2 * v) + v - log_z
        slope = half * C * (1 - t * t) / (1 + C * t) + 2 * k * jax.nn.sigmoid(2 * v) + 1
        low, high = jnp.where(F < 0, v, low), jnp.where(F > 0, v, high)
        newton = v - F / slope
        # At the root the sign of F is rounding error, and compiled code may round `low` and `newton` differently.
        inside = (low - _SLACK <= newton) & (newton <= high + _SLACK)
        return low, high, jnp.where(inside, newton, (low + high) / 2)

    *_, v = jax.lax.fori_loop(0, _ITERATIONS, step, (low, high, (low + high) / 2))
    return side * jnp.exp(v)


@standard_normal_quantile.defjvp
def _implicit_derivative(primals, tangents):
    (theta, x), (theta_dot, x_dot) = primals, tangents
    u = standard_normal_quantile(theta, x)
    _, G_dot = jax.jvp(lambda theta: quantile(theta, u), (theta,), (theta_dot,))
    return u, (x_dot - G_dot) * jnp.exp(-_slope(theta, u).log_slope)


class _Slope(NamedTuple):
    """log G'(u) and its first two derivatives in u."""

    log_slope: Float[Array, ""]
    first: Float[Array, ""]
    second: Float[Array, ""]


def _slope(theta: Float[Array, "4"], u: Float[Array, ""]) -> _Slope:
    """The logarithm of `G'(u) = B (1 + u^2)^k S(u)`, `S = (1 + c t) r + u e`, and its derivatives.

    Here t = tanh(g u / 2), r = 1 + 2 k u^2 / (1 + u^2) and e = c dt/du; r1, r2, e1, e2, S1, S2 are their derivatives in
    u. S is bounded, and bounded away from zero, so only B (1 + u^2)^k needs the logarithm.
    """
    _, log_B, g, log_k = theta
    k = jnp.exp(log_k)
    p = 1 / (1 + u * u)
    t = jnp.tanh(g * u / 2)
    q = 1 - t * t
    r, r1, r2 = 1 + 2 * k * u * u * p, 4 * k * u * p**2, 4 * k * (4 * p - 3) * p**2
    e = C * g / 2 * q
    e1, e2 = -g * t * e, g**2 * e * (t * t - q / 2)
    S = (1 + C * t) * r + u * e
    S1 = e * r + (1 + C * t) * r1 + e + u * e1
    S2 = e1 * r + 2 * e * r1 + (1 + C * t) * r2 + 2 * e1 + u * e2
    return _Slope(
        log_slope=log_B + k * jnp.log1p(u * u) + jnp.log(S),
        first=2 * k * u * p + S1 / S,
        second=2 * k * (2 * p - 1) * p + S2 / S - (S1 / S) ** 2,
    )


def log_prob(theta: Float[Array, "4"], x: Float[Array, ""]) -> Float[Array, ""]:
    """The log density `log p(x) = log phi(u) - log G'(u)` with G(u) = x and phi the standard normal density.

    Example:
        >>> theta = jnp.array([1.0, 0.5, 1.0, -1.0])
        >>> print(f"{log_prob(theta, jnp.array(1.0)):.3f}")  # at the median, u = 0 and G'(u) = B
        -1.419
    """
    u = standard_normal_quantile(theta, x)
    return -0.5 * (u * u + jnp.log(2 * jnp.pi)) - _slope(theta, u).log_slope


def score(theta: Float[Array, "4"], x: Float[Array, ""]) -> Float[Array, ""]:
    """`d/dx log p(x) = -(u + l') / G'` with l = log G'(u) and l' its derivative in u."""
    u = standard_normal_quantile(theta, x)
    log_slope, first, _ = _slope(theta, u)
    return -(u + first) * jnp.exp(-log_slope)


def laplacian(theta: Float[Array, "4"], x: Float[Array, ""]) -> Float[Array, ""]:
    """`d^2/dx^2 log p(x) = ((u + l') l' - 1 - l'') / G'^2` with l = log G'(u)."""
    u = standard_normal_quantile(theta, x)
    log_slope, first, second = _slope(theta, u)
    return ((u + first) * first - 1 - second) * jnp.exp(-2 * log_slope)


def smoothed_log_prob(theta: Float[Array, "4"], x: Float[Array, ""], h: Float[Array, ""]) -> Float[Array, ""]:
    """The log density of x + h e with a standard normal e, `log integral of N(x; G(u), h^2) phi(u) du`, for h > 0.

    It uses the trapezoidal rule with steps of 0.001, which is accurate if h is many times |G'(u)| / 1000 at G(u) = x.
    """
    return jax.nn.logsumexp(_smoothed_terms(theta, x, h)[0]) + jnp.log(_STEP) - jnp.log(2 * jnp.pi * h)


def smoothed_derivatives(
    theta: Float[Array, "4"], x: Float[Array, ""], h: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`h s` and `h^2 l` with s the score and l the Laplacian of `smoothed_log_prob`.

    With E the mean over u given x, and r = (G(u) - x) / h: h s = E r and h^2 l = E r^2 - (E r)^2 - 1.
    """
    logs, r = _smoothed_terms(theta, x, h)
    weights = jax.nn.softmax(logs)
    mean = weights @ r
    return mean, weights @ (r - mean) ** 2 - 1


def _smoothed_terms(theta, x, h):
    u = jnp.arange(-_NODES, _NODES + 1) * _STEP
    r = (jax.vmap(quantile, (None, 0))(theta, u) - x) / h
    return -0.5 * (r**2 + u**2), r
