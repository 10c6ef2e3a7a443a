"""From the seeds that users choose to the keys that JAX needs."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key


def seed_key(seed: int) -> Key[Array, ""]:
    """A JAX key for a whole number of any size.

    Of 2**32 and more `jax.random.key` would keep the last 32 bits in single precision, and refuse 2**63.
    """
    if seed < 2**32:
        return jax.random.key(seed)
    state = np.random.SeedSequence(seed).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(state), impl="threefry2x32")
