"""How far out observations are under a Gaussian mixture, by the distances from its components.

Under component k, of weight w_k, an observation is farther from the mean than x with probability
P(chi^2_d > D_k(x)^2), where D_k is the Mahalanobis distance. The tail share of x is their average,

    alpha(x) = sum_k w_k P(chi^2_d > D_k(x)^2).

An observation that the mixture produced has a tail share below a with probability at most K a, and about a where one
component is wider than the others. It needs no scale: tails are light or heavy as those of the model are, groups have a
gap between them, and the number of columns does not matter.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import call_each, map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.surrogates import MixtureDensity

_RARE = 0.05  # as far out as it, the model lets expect so few observations, if one loses half its weight
_ROWS = 1000  # observations of a compiled call
_AT_ONCE = 16  # such calls


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
    """Of n observations, how many as far out as each the model lets expect, on average over draws of theta."""
    if len(x) <= _ROWS:
        return len(x) * map_rows(tail_shares, thetas, density, jnp.asarray(x)).mean(axis=0)
    blocks = np.concatenate([x, np.repeat(x[:1], -len(x) % _ROWS, axis=0)]).reshape(-1, _ROWS, x.shape[1])
    found = []
    for start in range(0, len(blocks), _AT_ONCE):
        found += call_each(_of_draws, [(block,) for block in blocks[start : start + _AT_ONCE]], thetas, density)
    return len(x) * np.concatenate(found)[: len(x)]


def _of_draws(x: Array, thetas: Array, density: MixtureDensity) -> Array:
    return jax.lax.map(lambda theta: tail_shares(theta, density, x), thetas).mean(axis=0)


def kept_in_tail(expected: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """What observations keep of their weight, given how many as far out are expected: half at 0.05.

    Example:
        >>> kept_in_tail(np.array([5.0, 0.05, 1e-9])).round(3).tolist()
        [1.0, 0.5, 0.0]
    """
    return 1 / (1 + np.square(_RARE / np.maximum(expected, 1e-150)))
