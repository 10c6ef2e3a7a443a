"""The mixture density network: a Gaussian mixture for x whose parameters are a network of theta (Proposition 2)."""

import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes.surrogates.base import Density, Derivatives, Frame
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.surrogates.scaling import Standardiser, squash

_OFF_DIAGONAL = 3.0  # larger ratios only cost digits: covariances then have condition numbers beyond 1e10


class MixtureDensityNetwork(Density):
    """q(x | theta) = sum_k pi_k(theta) N(x; m_k(theta), S_k(theta)), in standardised coordinates.

    S_k = floor^2 I + L_k L_k', with L_k lower triangular and its entries bounded, so that the eigenvalues of S_k lie
    between floor^2 and a constant whatever theta is. theta is squashed smoothly, 3 tanh(t / 3), so that nothing
    extrapolates beyond what the network was trained on.
    """

    smoothable: ClassVar[bool] = True

    layers: tuple[eqx.nn.Linear, ...]
    scale_x: Standardiser
    scale_theta: Standardiser
    components: int = eqx.field(static=True)
    floor: float = eqx.field(static=True)
    ceiling: float = eqx.field(static=True)

    def __check_init__(self):
        if self.scale_x.asinh:
            raise ValueError("x must be standardised by an affine map: the mixture is Gaussian in x.")

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""
        K, d = self.components, len(self.scale_x.scale)
        h = squash(t)
        for layer in self.layers[:-1]:
            h = jnp.tanh(layer(h))
        logits, means, diagonal, lower = jnp.split(self.layers[-1](h), [K, K + K * d, K + 2 * K * d])
        low, high = math.log(self.floor), math.log(self.ceiling)
        spread = jnp.exp(low + (high - low) * jax.nn.sigmoid(diagonal.reshape(K, d)))
        rows, columns = np.tril_indices(d, -1)
        L = jnp.tile(jnp.eye(d, dtype=h.dtype), (K, 1, 1))
        L = spread[:, :, None] * L.at[:, rows, columns].set(_OFF_DIAGONAL * jnp.tanh(lower.reshape(K, -1)))
        covariances = L @ L.transpose(0, 2, 1) + self.floor**2 * jnp.eye(d, dtype=h.dtype)
        return GaussianMixture(jax.nn.log_softmax(logits), means.reshape(K, d), covariances)

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates."""
        return self.mixture(t).factor().log_prob(z[None])[0]

    def log_prob(self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(x | theta)."""
        return self.log_probs(theta, x[None])[0]

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points, with one pass through the network."""
        mixture = self.mixture(self.scale_theta(theta)).factor()
        return mixture.log_prob(self.scale_x(x)) - jnp.log(self.scale_x.scale).sum()

    def at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, ""] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y, the mixture convolved with noise of standard deviation h in y."""
        D = frame.basis / self.scale_x.scale[:, None]
        return (
            self.mixture(self.scale_theta(theta))
            .pull_back(self.scale_x(frame.offset), D)
            .smooth(h)
            .factor()
            .derivatives
        )

    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x d_x"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of an invertible `basis`."""
        score, laplacian = self.at(theta, Frame(jnp.zeros_like(x), basis), 0.0)(jnp.linalg.solve(basis, x)[None])
        return Derivatives(score[0], laplacian[0])


def init_mixture_density_network(
    key: PRNGKeyArray,
    scale_x: Standardiser,
    scale_theta: Standardiser,
    *,
    components: int,
    hidden: tuple[int, ...],
    floor: float,
    ceiling: float,
) -> MixtureDensityNetwork:
    """An untrained network. The means of the components start spread over the bulk of the data."""
    d_x, d_theta, K = len(scale_x.scale), len(scale_theta.scale), components
    widths = (d_theta, *hidden, K * (1 + 2 * d_x + d_x * (d_x - 1) // 2))
    keys = jax.random.split(key, len(widths))
    layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(widths[:-1], widths[1:], keys[1:], strict=True)]
    means = slice(K, K + K * d_x)
    spread = jax.random.normal(keys[0], (K * d_x,))
    layers[-1] = eqx.tree_at(lambda layer: layer.bias, layers[-1], replace_fn=lambda bias: bias.at[means].set(spread))
    return MixtureDensityNetwork(tuple(layers), scale_x, scale_theta, components, floor, ceiling)
