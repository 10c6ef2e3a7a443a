"""A network that predicts the distance between simulations at theta and a data set."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes.methods.baselines.networks.deep_set import DeepSet
from nsmbayes.surrogates.scaling import Standardiser


class CostNetwork(eqx.Module):
    """f(theta, x_1, ..., x_n) > 0: a residual network of theta and of the deep set's summary of the data."""

    embedding: DeepSet
    first: eqx.nn.Linear
    blocks: tuple[eqx.nn.MLP, ...]
    last: eqx.nn.Linear
    scale_x: Standardiser
    scale_theta: Standardiser
    unit: Standardiser  # unit of the distance; a plain array would be trained

    def summary(self, x: Float[Array, "n d_x"]) -> Float[Array, " k"]:
        """The network's summary of a data set."""
        return self.embedding(self.scale_x(x))

    def cost(self, theta: Float[Array, " d_theta"], summary: Float[Array, " k"]) -> Float[Array, ""]:
        """The predicted distance."""
        return self.network_cost(self.scale_theta(theta), summary) * self.unit.scale[0]

    def network_cost(self, t: Float[Array, " d_theta"], summary: Float[Array, " k"]) -> Float[Array, ""]:
        """The predicted distance in units of the mean distance, for standardised theta."""
        h = self.first(jnp.concatenate([t, summary]))
        for block in self.blocks:
            h = h + block(jax.nn.relu(h))
        return jax.nn.softplus(self.last(jax.nn.relu(h)))[0]


def init_cost_network(
    key: PRNGKeyArray,
    scale_x: Standardiser,
    scale_theta: Standardiser,
    *,
    unit: float,
    summaries: int,
    hidden: int,
    blocks: int,
) -> CostNetwork:
    """Build an untrained network.

    Args:
        key: for the weights.
        scale_x: standardiser of x.
        scale_theta: standardiser of theta.
        unit: typical size of the distances.
        summaries: outputs of the deep set.
        hidden: width of all layers.
        blocks: residual blocks, of two layers each.
    """
    keys = jax.random.split(key, blocks + 3)
    d_theta = len(scale_theta.scale)
    return CostNetwork(
        embedding=DeepSet(keys[0], len(scale_x.scale), hidden=hidden, outputs=summaries),
        first=eqx.nn.Linear(d_theta + summaries, hidden, key=keys[1]),
        blocks=tuple(eqx.nn.MLP(hidden, hidden, hidden, 1, activation=jax.nn.relu, key=k) for k in keys[3:]),
        last=eqx.nn.Linear(hidden, 1, key=keys[2]),
        scale_x=scale_x,
        scale_theta=scale_theta,
        unit=Standardiser(jnp.zeros(1), jnp.full(1, unit), asinh=False),
    )
