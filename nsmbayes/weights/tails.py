"""How far out observations are under a Gaussian mixture, from the distances to its components.

Under component k, of weight w_k, an observation is farther from the mean than x with probability
P(chi^2_d > D_k(x)^2), where D_k is the Mahalanobis distance. The tail share of x is the average of these probabilities,

    alpha(x) = sum_k w_k P(chi^2_d > D_k(x)^2).

A draw of the mixture has a tail share below a with probability at most K a, and about a if one component is wider than
the others. The tail share needs no scale: it follows light or heavy tails of the model, it is small in gaps between
groups, and the number of columns does not matter.

Several observations that are a little too far out are stronger evidence than one. Where e = n alpha observations are
expected and c are found (not counting those that are much farther out), each would keep 1 / (1 + (0.05 c / e)^4) of its
weight, with c from 1 to 3, if only its distance mattered. This factor decides which rows are reported as too far out;
it does not enter the weights. (It is a false discovery rate, except that c is limited: otherwise good rows next to many
outliers would be reported with them.)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jaxtyping import Array, Float
from scipy.special import expit, ndtri

from nsmbayes._internal.parallel import call_each, map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.surrogates import MixtureDensity

_RARE = 0.05  # a lone observation loses half its weight where the model predicts this many as far out
_SLOPE = 4
_MOST, _ASKED = 3.0, 8  # largest c, and the number of neighbours on either side that are compared
_AROUND, _EDGE = 1.5, 0.15  # standard deviations within which neighbours count, and over which their share falls to 0
_ROWS = 1000  # observations in one compiled call
_AT_ONCE = 16  # such calls at once


def tail_shares(theta: Float[Array, " d_theta"], density: MixtureDensity, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """alpha(x_i) under the mixture at theta."""
    mixture, d = density.mixture(density.scale_theta(theta)), x.shape[1]
    parts = mixture.smooth(0.0).components(density.scale_x(x))
    squares = -(parts.scores * parts.residuals).sum(axis=1)
    if d == 1:
        shares = erfc(jnp.sqrt(squares / 2))
    else:  # Wilson and Hilferty: the cube root of chi^2 / d is nearly normal
        shares = 0.5 * erfc((jnp.cbrt(squares / d) - 1 + 2 / (9 * d)) / jnp.sqrt(4 / (9 * d)))
    return jnp.exp(mixture.log_weights) @ shares


@double_precision
def expected_beyond(
    density: MixtureDensity, thetas: Float[np.ndarray, "draws d_theta"], x: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, " n"]:
    """For each of n observations, how many at least as far out the model predicts, averaged over draws of theta."""
    if len(x) <= _ROWS:
        return len(x) * map_rows(tail_shares, thetas, density, jnp.asarray(x)).mean(axis=0)
    blocks = np.concatenate([x, np.repeat(x[:1], -len(x) % _ROWS, axis=0)]).reshape(-1, _ROWS, x.shape[1])
    found = []
    for start in range(0, len(blocks), _AT_ONCE):
        found += call_each(_of_draws, [(block,) for block in blocks[start : start + _AT_ONCE]], thetas, density)
    return len(x) * np.concatenate(found)[: len(x)]


class Tail(NamedTuple):
    """How far out observations are."""

    beyond: Float[np.ndarray, " n"]
    """For each observation, the number at least as far out that the model predicts."""
    kept: Float[np.ndarray, " n"]
    """The factor that each observation would have for its distance alone."""

    @classmethod
    def of(
        cls, density: MixtureDensity, thetas: Float[np.ndarray, "draws d_theta"], x: Float[np.ndarray, "n d"]
    ) -> "Tail":
        """The tail of all observations, under a model averaged over draws of theta."""
        beyond = expected_beyond(density, thetas, x)
        return cls(beyond, kept_in_tail(beyond))


def _of_draws(x: Array, thetas: Array, density: MixtureDensity) -> Array:
    return jax.lax.map(lambda theta: tail_shares(theta, density, x), thetas).mean(axis=0)


def kept_in_tail(expected: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The share of its weight that each of n observations keeps, given the expected number as far out.

    A lone observation keeps half at 0.05, three together at 0.15.

    Example:
        >>> expected = np.concatenate([np.arange(1.0, 98.0), [0.05, 1e-9, 1e-30]])
        >>> kept_in_tail(expected)[-4:].round(2).tolist()
        [1.0, 0.5, 0.0, 0.0]
    """
    expected = np.clip(expected, 1e-70, len(expected))
    return 1 / (1 + (_RARE * _alike(expected) / expected) ** _SLOPE)


def _alike(expected: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """How many observations are about as far out as each, itself included, from 1 to 3; a smooth function."""
    order = np.argsort(expected)
    e = expected[order]
    z = -ndtri(e / (2 * len(e)))
    found = np.ones(len(e))
    for step in range(1, min(_ASKED + 1, len(e))):
        outer, inner = slice(None, -step), slice(step, None)
        share = 1 / (1 + (e[outer] / e[inner]) ** 2)  # 1 for observations farther out, 1/2 at the same place
        near = expit((_AROUND - (z[outer] - z[inner])) / _EDGE)
        found[inner] += share * near
        found[outer] += 1 - share
    alike = np.empty(len(e))
    alike[order] = np.minimum(found, _MOST)
    return alike
