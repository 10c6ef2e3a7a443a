"""A permutation-invariant network for data sets of independent observations."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


class DeepSet(eqx.Module):
    """s(x_1, ..., x_n) = rho(mean_i phi(x_i)) with two networks phi and rho (Zaheer et al. 2017)."""

    phi: eqx.nn.MLP
    rho: eqx.nn.MLP

    def __init__(self, key: PRNGKeyArray, d_x: int, *, hidden: int, outputs: int):
        """Two hidden layers before the mean and one after it, of `hidden` units each."""
        key_phi, key_rho = jax.random.split(key)
        relu = jax.nn.relu
        self.phi = eqx.nn.MLP(d_x, hidden, hidden, 1, activation=relu, final_activation=relu, key=key_phi)
        self.rho = eqx.nn.MLP(hidden, outputs, hidden, 1, activation=relu, key=key_rho)

    def __call__(self, z: Float[Array, "n d_x"]) -> Float[Array, " outputs"]:
        """The summary of one data set."""
        return self.rho(jax.vmap(self.phi)(z).mean(axis=0))
