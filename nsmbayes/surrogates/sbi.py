"""The density estimators of sbi, in JAX: a mixture density network with ReLU layers, and affine transforms.

`SbiMDN` and `SbiMAF` describe the architecture, so that a converted surrogate can be saved, and loaded without torch.
"""

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.linalg import inverse_and_log_det
from nsmbayes.errors import InputError
from nsmbayes.serialisation import registered
from nsmbayes.surrogates.base import Density
from nsmbayes.surrogates.configs import Scalers, SurrogateConfig, layer_widths
from nsmbayes.surrogates.maf import MaskedAutoregressiveFlow
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


class Embedding(eqx.Module):
    """The embedding of standardised theta in sbi's networks: theta itself, or the output of dense layers."""

    layers: tuple[Affine, ...] = ()
    activations: tuple[str, ...] = eqx.field(static=True, default=())
    """The activation after each layer: a name in `EMBEDDING_ACTIVATIONS`."""

    def __call__(self, t: Float[Array, " d_theta"]) -> Float[Array, " out"]:
        """The embedded theta, which is the input of the density estimator."""
        for layer, name in zip(self.layers, self.activations, strict=True):
            t = EMBEDDING_ACTIVATIONS[name](layer(t))
        return t


EMBEDDING_ACTIVATIONS = {
    "identity": lambda h: h,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "leaky_relu": jax.nn.leaky_relu,
}
"""Activations for the embedding of theta, which needs no derivatives in x."""


class SbiMixture(MixtureDensity):
    """sbi's mixture density network: ReLU layers of theta, then weights, means and precisions of K Gaussians.

    With A_k upper triangular, sbi's components have the precision P_k = A_k' A_k + epsilon I but are normalised by
    det A_k, so the density integrates to one only approximately. This is kept, so that log_prob agrees with sbi's.
    """

    hidden: tuple[Affine, ...]
    logits: Affine
    means: Affine
    diagonal: Affine
    upper: Affine
    scale_x: Standardiser
    scale_theta: Standardiser
    epsilon: float = eqx.field(static=True)
    embedding: Embedding = Embedding()

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""
        d, h = len(self.scale_x.scale), self.embedding(t)
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
    embedding: Embedding = Embedding()

    def transform_and_log_det(
        self, z: Float[Array, " d_x"], t: Float[Array, " d_theta"]
    ) -> tuple[Float[Array, " d_x"], Float[Array, ""]]:
        """u and log |du/dz|."""
        total, t = jnp.zeros((), z.dtype), self.embedding(t)
        for part in self.parts:
            z, log_det = part.transform_and_log_det(z, t)
            total += log_det
        return z, total


class _Adopted(SurrogateConfig):
    """A surrogate that was trained elsewhere: `build` only creates a template, to be filled with saved numbers."""

    trainable: ClassVar[bool] = False

    def _check_embedding(self, widths: tuple[int, ...], activations: tuple[str, ...]) -> None:
        if widths:
            layer_widths(widths, "embedding")
        if len(widths) != len(activations) or not set(activations) <= set(EMBEDDING_ACTIVATIONS):
            raise InputError("`activations` must be a known name for each layer of `embedding`.")

    @staticmethod
    def _embedding(d: int, widths: tuple[int, ...], activations: tuple[str, ...]) -> Embedding:
        return Embedding(_blank_layers(d, *widths), activations)


@registered
@dataclass(frozen=True, kw_only=True)
class SbiMDN(_Adopted):
    """The architecture of an `SbiMixture`: widths of its layers, number of components, and sbi's epsilon."""

    kind: ClassVar[str] = "sbi-mdn"

    hidden: tuple[int, ...] = (50, 50)
    components: int = 10
    epsilon: float = 1e-2
    embedding: tuple[int, ...] = ()
    activations: tuple[str, ...] = ()

    def __post_init__(self):
        layer_widths(self.hidden, "hidden")
        checks.integer(self.components, "components", at_least=1, at_most=10_000)
        checks.positive(self.epsilon, "epsilon")
        self._check_embedding(self.embedding, self.activations)

    @classmethod
    def of(cls, density: SbiMixture) -> "SbiMDN":
        """The architecture of a converted density."""
        return cls(
            hidden=tuple(len(layer.b) for layer in density.hidden),
            components=len(density.logits.b),
            epsilon=density.epsilon,
            embedding=tuple(len(layer.b) for layer in density.embedding.layers),
            activations=density.embedding.activations,
        )

    def build(self, key: PRNGKeyArray, scalers: Scalers, *, noise: tuple[float, float] | None = None) -> Density:
        """A mixture of this architecture, with zeros instead of weights."""
        del key, noise
        d, K, width = len(scalers.x.scale), self.components, self.hidden[-1]
        embedding = self._embedding(len(scalers.theta.scale), self.embedding, self.activations)
        inputs = self.embedding[-1] if self.embedding else len(scalers.theta.scale)
        return SbiMixture(
            hidden=_blank_layers(inputs, *self.hidden),
            logits=_blank(width, K),
            means=_blank(width, K * d),
            diagonal=_blank(width, K * d),
            upper=_blank(width, K * (d * (d - 1) // 2)),
            scale_x=scalers.x,
            scale_theta=scalers.theta,
            epsilon=self.epsilon,
            embedding=embedding,
        )


@registered
@dataclass(frozen=True, kw_only=True)
class SbiMAF(_Adopted):
    """The architecture of a flow of sbi: its transforms in order, and the width and number of their layers."""

    kind: ClassVar[str] = "sbi-maf"

    parts: tuple[Literal["affine", "reorder"], ...] = ("affine",)
    hidden: int = 50
    blocks: int = 2
    epsilon: float = 1e-3
    embedding: tuple[int, ...] = ()
    activations: tuple[str, ...] = ()

    def __post_init__(self):
        if not 0 < len(self.parts) <= 1000 or not set(self.parts) <= {"affine", "reorder"}:
            raise InputError("`parts` must be 1 to 1000 of 'affine' and 'reorder'.")
        checks.integer(self.hidden, "hidden", at_least=1, at_most=100_000)
        checks.integer(self.blocks, "blocks", at_most=1000)
        checks.positive(self.epsilon, "epsilon")
        self._check_embedding(self.embedding, self.activations)

    @classmethod
    def of(cls, flow: MaskedAutoregressiveFlow) -> "SbiMAF":
        """The architecture of a converted flow."""
        chain: Chain = flow.transform
        first = next(part for part in chain.parts if isinstance(part, MaskedAffine))
        return cls(
            parts=tuple("affine" if isinstance(part, MaskedAffine) else "reorder" for part in chain.parts),
            hidden=len(first.first.b),
            blocks=len(first.blocks),
            epsilon=first.epsilon,
            embedding=tuple(len(layer.b) for layer in chain.embedding.layers),
            activations=chain.embedding.activations,
        )

    def build(self, key: PRNGKeyArray, scalers: Scalers, *, noise: tuple[float, float] | None = None) -> Density:
        """A flow of this architecture, with zeros instead of weights."""
        del key, noise
        d, d_theta, width = len(scalers.x.scale), len(scalers.theta.scale), self.hidden
        context = self.embedding[-1] if self.embedding else d_theta

        def part(kind: str) -> MaskedAffine | Reorder:
            if kind == "reorder":
                return Reorder(jnp.arange(d))
            blocks = _blank_layers(width, *(width,) * self.blocks)
            return MaskedAffine(
                _blank(d, width), _blank(context, width), blocks, _blank(width, 2 * d), epsilon=self.epsilon
            )

        embedding = self._embedding(d_theta, self.embedding, self.activations)
        return sbi_flow(Chain(tuple(map(part, self.parts)), embedding), scalers)


def sbi_flow(chain: Chain, scalers: Scalers) -> MaskedAutoregressiveFlow:
    """A flow of sbi's transforms: theta is not squashed, and scales have no floor except sbi's epsilon."""
    return MaskedAutoregressiveFlow(
        transform=chain,
        scale_x=scalers.x,
        scale_theta=scalers.theta,
        probes=None,
        squash=False,
        activation="tanh",
        floor=0.0,
    )


def config_of(density: Density) -> SbiMDN | SbiMAF:
    """The architecture of a density that was converted from sbi."""
    if isinstance(density, SbiMixture):
        return SbiMDN.of(density)
    if isinstance(density, MaskedAutoregressiveFlow) and isinstance(density.transform, Chain):
        return SbiMAF.of(density)
    raise InputError(f"`density` must be one that was converted from sbi; got {type(density).__name__}.")


def _blank(inputs: int, outputs: int) -> Affine:
    return Affine(jnp.zeros((outputs, inputs)), jnp.zeros(outputs))


def _blank_layers(*widths: int) -> tuple[Affine, ...]:
    return tuple(_blank(one, two) for one, two in itertools.pairwise(widths))
