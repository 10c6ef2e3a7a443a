"""From the seeds that users choose to the keys that JAX needs."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from nsmbayes import _checks


def random_key(seed: int, stream: int = 0) -> Key[Array, ""]:
    """A JAX key for a whole number of any size; different streams of one seed are independent."""
    state = np.random.SeedSequence((stream, _checks.integer(seed, "seed"))).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(state), impl="threefry2x32")


def seed_key(seed: int) -> Key[Array, ""]:
    """The key that `jax.random.key` makes, but for a whole number of any size.

    Of 2**32 and more `jax.random.key` would keep the last 32 bits in single precision, and refuse 2**63.
    """
    return jax.random.key(seed) if seed < 2**32 else random_key(seed)
