"""Parameters and JAX keys of numbered rows: those of row i depend only on (seed, i)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.priors import GaussianPrior, UnconstrainedPrior, as_prior, unconstrained

MOST_ROWS = 2**32
"""Largest number of rows for one seed: JAX keys are folded with 32 bits."""

_PRIOR_BLOCK = 1024  # rows of theta are always drawn in whole blocks of this size, so that they are reproducible
_THETA, _KEYS = 101, 104  # random streams of a seed, in addition to those of `nsmbayes.calls`


@functools.cache
def _folding() -> Any:
    return jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))


def row_keys(seed: int, first: int, count: int) -> Key[Array, " count"]:
    """JAX keys of `count` rows, starting at row `first`."""
    return _folding()(random_key(seed, _KEYS), jnp.asarray(np.arange(first, first + count, dtype=np.uint32)))


def draw_theta(prior: Any, seed: int, start: int, stop: int) -> Float[np.ndarray, "rows d"]:
    """The parameters of rows `start` to `stop`, drawn from the prior.

    Example:
        >>> import nsmbayes as nsm
        >>> from nsmbayes.simulators import draw_theta
        >>> prior = nsm.GaussianPrior(mean=[0.0], covariance=[1.0])
        >>> bool((draw_theta(prior, 0, 0, 5000)[3000:3010] == draw_theta(prior, 0, 3000, 3010)).all())
        True
    """
    first, prior = start // _PRIOR_BLOCK, as_prior(prior)
    support = None if isinstance(prior, GaussianPrior) else unconstrained(prior)
    blocks = [_block(prior, support, seed, block) for block in range(first, -(-stop // _PRIOR_BLOCK))]
    return np.concatenate(blocks)[start - first * _PRIOR_BLOCK : stop - first * _PRIOR_BLOCK]


@double_precision
def _block(prior: Any, support: UnconstrainedPrior | None, seed: int, block: int) -> Float[np.ndarray, "size d"]:
    words = np.random.SeedSequence((_THETA, seed, block)).generate_state(2, np.uint64)
    of_block = int(words[0]) << 64 | int(words[1])
    if support is None:
        return prior.sample((_PRIOR_BLOCK,), of_block)
    return np.asarray(support.distribution.sample(random_key(of_block), (_PRIOR_BLOCK,)))
