"""RealNVP: a flow of affine coupling layers (Dinh et al. 2017), by FlowJAX."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes.surrogates.maf import affine_autoregressive, flow_log_prob, standardising_map
from nsmbayes.surrogates.scaling import Standardiser, squash

_FLOOR = 0.01


class CouplingFlow(eqx.Module):
    """log q(s | theta) in standardised coordinates: each layer shifts and scales one half of s given the other.

    theta is bounded smoothly at the input of the network, to prevent extrapolation. A single statistic has no other
    half: its density is a conditional Gaussian.
    """

    transform: Any  # a flowjax bijection from z to u
    scale_x: Standardiser
    scale_theta: Standardiser

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_s"]) -> Float[Array, ""]:
        """log q(z | t) of standardised statistics given standardised theta."""
        return flow_log_prob(self.transform, z, squash(t))


def init_coupling_flow(
    key: PRNGKeyArray, scale_x: Standardiser, scale_theta: Standardiser, *, layers: int, hidden: int
) -> CouplingFlow:
    """Build an untrained flow, close to a standard normal in standardised statistics."""
    d, d_theta = len(scale_x.scale), len(scale_theta.scale)
    if d == 1:
        transform = affine_autoregressive(
            key, d, d_theta, transforms=1, hidden=hidden, depth=2, floor=_FLOOR, activation="tanh"
        )
        return CouplingFlow(transform, scale_x, scale_theta)
    to_u = standardising_map(_FLOOR)
    from flowjax.bijections import Chain, Coupling, Flip

    steps = []
    for layer_key in jax.random.split(key, layers):
        layer = Coupling(
            layer_key,
            transformer=to_u,
            untransformed_dim=d // 2,
            dim=d,
            cond_dim=d_theta,
            nn_width=hidden,
            nn_depth=2,
            nn_activation=jnp.tanh,
        )
        steps += [layer, Flip((d,))]
    return CouplingFlow(Chain(steps), scale_x, scale_theta)
