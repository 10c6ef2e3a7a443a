"""Binomial and Poisson counts, each from ONE uniform number: fast when vectorised, and without rejections.

A count is the k at which the running sum of the probabilities exceeds u. The sum starts at the mode and continues with
mode + 1, mode - 1, mode + 2, ... so that it ends after a few standard deviations; a sum from zero could need as many
steps as there are people. JAX can trace the functions; call them with 64-bit floats. Counts are integers stored as
floats.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.lax import lgamma
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

# Above this hazard everybody has the event: no uniform u is below exp(-600).
_CERTAIN = 600.0
_TINY = 1e-300


def binomial(u: Float[Array, ""], n: Float[Array, ""], hazard: Float[Array, ""]) -> Float[Array, ""]:
    """A count from Binomial(n, 1 - exp(-hazard)): how many of n have an event that occurs at this rate.

    Example:
        >>> print(binomial(jnp.array(0.5), jnp.array(10.0), jnp.array(0.0)))
        0.0
    """
    hazard = jnp.minimum(hazard, _CERTAIN)
    p, odds = -jnp.expm1(-hazard), jnp.expm1(hazard)
    mode = jnp.minimum(jnp.floor((n + 1) * p), n)
    log_choose = lgamma(n + 1) - lgamma(mode + 1) - lgamma(n - mode + 1)
    log_probability = log_choose + xlogy(mode, p) - (n - mode) * hazard
    return _search(u, mode, jnp.exp(log_probability), lambda k: odds * (n + 1 - k))


def poisson(u: Float[Array, ""], mean: Float[Array, ""]) -> Float[Array, ""]:
    """A count from Poisson(mean).

    Example:
        >>> print(poisson(jnp.array(0.5), jnp.array(0.0)))
        0.0
    """
    mode = jnp.floor(mean)
    log_probability = xlogy(mode, mean) - mean - lgamma(mode + 1)
    return _search(u, mode, jnp.exp(log_probability), lambda k: mean)


def _search(
    u: Float[Array, ""],
    mode: Float[Array, ""],
    probability: Float[Array, ""],
    growth: Callable[[Float[Array, ""]], Float[Array, ""]],
) -> Float[Array, ""]:
    """The k that u selects, for probabilities with `P(k) = P(k - 1) growth(k) / k`; `probability` is P(mode)."""

    def undecided(state):
        rest, _, (_, above), (_, below) = state
        # Rounding may leave a remainder of 1e-12 when all probability is used up. The mode is then a valid choice.
        return (rest >= 0) & (above + below > _TINY)

    def step(state):
        rest, k, (up, above), (down, below) = state
        up, above = up + 1, above * growth(up + 1) / (up + 1)
        down, below = down - 1, below * down / jnp.maximum(growth(down), _TINY)
        after_up = rest - above
        after_both = after_up - below
        k = jnp.where(after_up < 0, up, jnp.where(after_both < 0, down, k))
        return jnp.where(after_up < 0, after_up, after_both), k, (up, above), (down, below)

    start = (u - probability, mode, (mode, probability), (mode, probability))
    return jax.lax.while_loop(undecided, step, start)[1]
