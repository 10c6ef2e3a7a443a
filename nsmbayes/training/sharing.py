"""Reparametrisation of a mixture density network for training: a part shared by all components, and a part for each."""

import math
from dataclasses import replace
from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes.surrogates import MixtureDensityNetwork
from nsmbayes.surrogates.mdn import OFF_DIAGONAL, unit_spread


class SharingNetwork(eqx.Module):
    """A network whose last layer is a sum: a part that is the same for all components, and one for each component.

    Changes common to all components, such as those of the mean and the spread of x given theta, are then learned once,
    and not by each component from its own simulations. Outputs have units in which equal steps change a mean, the log
    of a spread and an entry of N by similar amounts, and zero is a spread of one. These are the same densities in other
    coordinates, in which Adam finds better solutions; `whole` converts back to the coordinates of the network.
    """

    network: MixtureDensityNetwork
    """The network; its last layer has the part for each component."""
    shared: Float[Array, "*ensemble rows inputs"]
    """Weights, with the bias as last column, of the means, spreads and entries of N that all components share."""

    @classmethod
    def of(cls, network: MixtureDensityNetwork) -> Self:
        """`network` in these coordinates; the shared part is the mean over the components."""
        scaled = (_last(network) - _offsets(network)) / _units(network)
        K, d = network.components, len(network.scale_x.scale)
        parts = jnp.split(scaled, [K, K + K * d, K + 2 * K * d], axis=-2)[1:]
        by_component = (part.reshape(*part.shape[:-2], K, -1, part.shape[-1]) for part in parts)
        shared = jnp.concatenate([part.mean(axis=-3) for part in by_component], axis=-2)
        return cls(_ending(network, scaled - _repeated(shared, K, d)), shared)

    def whole(self) -> MixtureDensityNetwork:
        """The network in its own coordinates."""
        network = self.network
        scaled = _last(network) + _repeated(self.shared, network.components, len(network.scale_x.scale))
        return _ending(network, _units(network) * scaled + _offsets(network))


def _last(network: MixtureDensityNetwork) -> Float[Array, "*ensemble outputs inputs"]:
    """Weights and biases of the last layer; rows are logits, means, spreads and entries of N, each by component."""
    layer = network.layers[-1]
    assert layer.bias is not None
    return jnp.concatenate([layer.weight, layer.bias[..., None]], axis=-1)


def _ending(network: MixtureDensityNetwork, last: Float[Array, "*ensemble outputs inputs"]) -> MixtureDensityNetwork:
    """The network with another last layer."""
    layer = eqx.tree_at(lambda one: (one.weight, one.bias), network.layers[-1], (last[..., :-1], last[..., -1]))
    return replace(network, layers=(*network.layers[:-1], layer))


def _repeated(
    shared: Float[Array, "*ensemble rows inputs"], K: int, d: int
) -> Float[Array, "*ensemble outputs inputs"]:
    """The shared rows repeated for each component; zeros for logits, since a common change has no effect on them."""
    parts = [jnp.concatenate([part] * K, axis=-2) for part in jnp.split(shared, [d, 2 * d], axis=-2)]
    none = jnp.zeros((*shared.shape[:-2], K, shared.shape[-1]), shared.dtype)
    return jnp.concatenate([none, *parts], axis=-2)


def _units(network: MixtureDensityNetwork) -> Float[Array, "outputs 1"]:
    """The change of the outputs of the network for a step of one in these coordinates."""
    spread = 4 / math.log(network.ceiling / network.floor)  # the slope of the logistic function is a quarter
    return _rows(network, 1.0, spread, 1 / OFF_DIAGONAL)


def _offsets(network: MixtureDensityNetwork) -> Float[Array, "outputs inputs"]:
    """The last layer if these coordinates are zero: biases that give spreads of one."""
    bias = _rows(network, 0.0, unit_spread(network.floor, network.ceiling), 0.0)
    return jnp.pad(bias, ((0, 0), (network.layers[-1].weight.shape[-1], 0)))


def _rows(network: MixtureDensityNetwork, means: float, spreads: float, lower: float) -> Float[Array, "outputs 1"]:
    """A number for each output, depending on its kind; logits have the number of the means."""
    K, d = network.components, len(network.scale_x.scale)
    counts = [K + K * d, K * d, K * d * (d - 1) // 2]
    return jnp.asarray(np.repeat([means, spreads, lower], counts)[:, None], network.layers[-1].weight.dtype)
