"""Surrogates as sbi builds them, in JAX: a mixture density network with ReLU layers, and affine transforms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.linalg import inverse_and_log_det
from nsmbayes.surrogates.mdn import MixtureDensity
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.surrogates.scaling import Standardiser


class Affine(eqx.Module):
    """W h + b."""

    W: Float[Array, "out in"]
    b: Float[Array, " out"]

    def __call__(self, h: Float[Array, " in"]) -> Float[Array, " out"]:
        """The layer's output."""
        return self.W @ h + self.b


class SbiMixture(MixtureDensity):
    """sbi's mixture density network: ReLU layers of theta, then weights, means and precisions of K Gaussians.

    With A_k upper triangular, sbi's components have the precision P_k = A_k' A_k + epsilon I but are normalised by
    det A_k, so the density integrates to one only approximately. We keep that: log_prob agrees with sbi's.
    """

    hidden: tuple[Affine, ...]
    logits: Affine
    means: Affine
    diagonal: Affine
    upper: Affine
    scale_x: Standardiser
    scale_theta: Standardiser
    epsilon: float = eqx.field(static=True)

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""
        d, h = len(self.scale_x.scale), t
        for layer in self.hidden:
            h = jax.nn.relu(layer(h))
        diagonal = jax.nn.softplus(self.diagonal(h).reshape(-1, d))
        K = len(diagonal)
        A = jax.vmap(jnp.diag)(diagonal).at[:, *np.triu_indices(d, 1)].set(self.upper(h).reshape(K, -1))
        P = A.transpose(0, 2, 1) @ A + self.epsilon * jnp.eye(d, dtype=h.dtype)
        covariances, log_det = inverse_and_log_det(P)
        normalised_by = jnp.log(diagonal).sum(axis=1) - 0.5 * log_det
        return GaussianMixture(
            jax.nn.log_softmax(self.logits(h)) + normalised_by, self.means(h).reshape(K, d), covariances
        )


class MaskedAffine(eqx.Module):
    """u_i = scale_i z_i + shift_i, both from a masked tanh network of z_<i and theta; masked weights are zero."""

    first: Affine
    context: Affine
    blocks: tuple[Affine, ...]
    last: Affine
    epsilon: float = eqx.field(static=True)

    def transform_and_log_det(
        self, z: Float[Array, " d_x"], t: Float[Array, " d_theta"]
    ) -> tuple[Float[Array, " d_x"], Float[Array, ""]]:
        """u and log |du/dz|."""
        h = jnp.tanh(self.first(z) + jnp.tanh(self.context(t)))
        for block in self.blocks:
            h = jnp.tanh(block(h))
        raw, shift = self.last(h).reshape(-1, 2).T
        scale = jax.nn.softplus(raw) + self.epsilon
        return scale * z + shift, jnp.log(scale).sum()


class Reorder(eqx.Module):
    """A permutation of the coordinates."""

    order: Int[Array, " d_x"]

    def transform_and_log_det(
        self, z: Float[Array, " d_x"], t: Float[Array, " d_theta"]
    ) -> tuple[Float[Array, " d_x"], float]:
        """z permuted, and log |du/dz| = 0."""
        del t
        return z[self.order], 0.0


class Chain(eqx.Module):
    """A composition of transforms."""

    parts: tuple[MaskedAffine | Reorder, ...]

    def transform_and_log_det(
        self, z: Float[Array, " d_x"], t: Float[Array, " d_theta"]
    ) -> tuple[Float[Array, " d_x"], Float[Array, ""]]:
        """u and log |du/dz|."""
        total = jnp.zeros((), z.dtype)
        for part in self.parts:
            z, log_det = part.transform_and_log_det(z, t)
            total += log_det
        return z, total
