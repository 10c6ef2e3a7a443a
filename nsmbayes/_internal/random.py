"""JAX keys from integer seeds."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks


def dequantised(
    x: Float[np.ndarray, "m d_x"], grid_steps: tuple[float, ...] | None, *stream: int
) -> Float[np.ndarray, "m d_x"]:
    """`x` with uniform noise of one grid step, so that it has a density; `x` itself if `grid_steps` is None."""
    if grid_steps is None:
        return x
    return x + np.asarray(grid_steps) * np.random.default_rng(stream).uniform(-0.5, 0.5, x.shape)


def random_key(seed: int, stream: int = 0) -> Key[Array, ""]:
    """A JAX key for an integer seed of any size; different streams of one seed are independent."""
    state = np.random.SeedSequence((stream, checks.integer(seed, "seed"))).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(state), impl="threefry2x32")


def seed_key(seed: int) -> Key[Array, ""]:
    """The key that `jax.random.key` returns, for an integer seed of any size.

    From 2**32 on, `jax.random.key` keeps only the last 32 bits in single precision, and it fails for 2**63.
    """
    return jax.random.key(seed) if seed < 2**32 else random_key(seed)
