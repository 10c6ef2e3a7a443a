"""A product of scalar distributions of different kinds, as one numpyro distribution over a vector."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import constraints


class Product(dist.Distribution):
    """Independent scalars of different families: theta_j has the distribution `parts[j]`."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (as numpyro has it)
    pytree_data_fields = ("parts",)

    def __init__(self, parts: Sequence[dist.Distribution], *, validate_args: bool | None = None):
        self.parts = tuple(parts)
        super().__init__(batch_shape=(), event_shape=(len(self.parts),), validate_args=validate_args)

    @property
    def support(self) -> Any:
        """The product of the supports of the parts."""
        supports: list[Any] = [part.support for part in self.parts]
        return constraints.cat(supports, dim=-1)

    def sample(self, key: PRNGKeyArray | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape d"]:
        """Independent draws of each part."""
        assert key is not None
        keys = jax.random.split(key, len(self.parts))
        draws = [part.sample(one, sample_shape) for part, one in zip(self.parts, keys, strict=True)]
        return jnp.stack(jnp.broadcast_arrays(*draws), axis=-1)

    def log_prob(self, value: Any, intermediates: list[Any] | None = None) -> Float[Array, "..."]:
        """The log density: the sum over the parts."""
        del intermediates
        return sum((jnp.asarray(part.log_prob(value[..., j])) for j, part in enumerate(self.parts)), jnp.zeros(()))

    @property
    def mean(self) -> Float[Array, " d"]:
        """The mean of each part."""
        return jnp.stack([jnp.asarray(part.mean) for part in self.parts])

    @property
    def variance(self) -> Float[Array, " d"]:
        """The variance of each part."""
        return jnp.stack([jnp.asarray(part.variance) for part in self.parts])
