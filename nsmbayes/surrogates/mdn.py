"""The mixture density network: a Gaussian mixture for x whose parameters are a network of theta (Proposition 2)."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._internal.linalg import triangular_inverse
from nsmbayes.surrogates.base import Density, Derivatives, Frame
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.surrogates.scaling import Standardiser, squash

_OFF_DIAGONAL = 3.0  # with larger ratios covariances would have condition numbers above 1e10 and lose accuracy

Factor = Literal["covariance", "precision"]


class MixtureDensity(Density):
    """A density that is a Gaussian mixture in standardised x, with parameters that depend on standardised theta."""

    smoothable: ClassVar[bool] = True

    scale_x: eqx.AbstractVar[Standardiser]
    scale_theta: eqx.AbstractVar[Standardiser]

    @abstractmethod
    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates."""
        return self.mixture(t).smooth(0.0).log_prob(z[None])[0]

    def log_prob(self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(x | theta)."""
        return self.log_probs(theta, x[None])[0]

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points, with one evaluation of the network."""
        mixture = self.mixture(self.scale_theta(theta)).smooth(0.0)
        return mixture.log_prob(self.scale_x(x)) - jnp.log(self.scale_x.scale).sum()

    def derivatives_at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, "*points"] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y, for the mixture convolved with noise of standard deviation h."""
        D = frame.basis / self.scale_x.scale[:, None]
        mixture = self.mixture(self.scale_theta(theta)).pull_back(self.scale_x(frame.offset), D)
        return mixture.smooth(h).derivatives

    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x d_x"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of an invertible `basis`."""
        score, laplacian = self.derivatives_at(theta, Frame(x, basis), 0.0)(jnp.zeros_like(x)[None])
        return Derivatives(score[0], laplacian[0])


class MixtureDensityNetwork(MixtureDensity):
    """q(x | theta) = sum_k pi_k(theta) N(x; m_k(theta), S_k(theta)), in standardised coordinates.

    The network gives a bounded triangular factor of the covariances or of the precisions, so that the eigenvalues of
    S_k lie between two positive constants for every theta:

    - factor="covariance": S_k = floor^2 I + L_k L_k', L_k = diag(s) (I + N), with floor <= s <= ceiling.
    - factor="precision": S_k^-1 = U_k' U_k, U_k = (I + N) diag(1 / s). The log density needs one product and no
      factorisation, so that training costs what its arithmetic does in any dimension.

    N is strictly lower triangular, its entries bounded. theta is squashed smoothly, 3 tanh(t / 3), so that the network
    does not extrapolate in theta.
    """

    layers: tuple[eqx.nn.Linear, ...]
    scale_x: Standardiser
    scale_theta: Standardiser
    components: int = eqx.field(static=True)
    floor: float = eqx.field(static=True)
    ceiling: float = eqx.field(static=True)
    factor: Factor = eqx.field(static=True, default="covariance")

    def __check_init__(self):
        if self.scale_x.asinh:
            raise ValueError("x must be standardised by an affine map: the mixture is Gaussian in x.")

    @property
    def eigenvalue_bounds(self) -> tuple[float, float]:
        """Bounds of the eigenvalues of all covariances in standardised x, whatever theta is."""
        d = len(self.scale_x.scale)
        if self.factor == "covariance":  # |L|_F^2: a diagonal up to the ceiling, and ratios below it
            return self.floor**2, self.floor**2 + self.ceiling**2 * d * (1 + _OFF_DIAGONAL**2 * (d - 1) / 2)
        # |I + N|_F^2, and the same of its inverse, whose entries are at most c (1 + c)^(i - j - 1)
        c, below = _OFF_DIAGONAL, np.arange(d - 1)
        squares = d + c**2 * d * (d - 1) / 2
        inverse = d + float(((d - 1 - below) * (c * (1 + c) ** below) ** 2).sum())
        return self.floor**2 / squares, self.ceiling**2 * inverse

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""
        return self._mixture(self.layers, t)

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates."""
        if self.factor == "covariance":
            return super().network_log_prob(t, z)
        return self._precision_log_probs(self.layers, t, z[None])[0]

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points, with one pass through the network."""
        if self.factor == "covariance":
            return super().log_probs(theta, x)
        logs = self._precision_log_probs(self.layers, self.scale_theta(theta), self.scale_x(x))
        return logs - jnp.log(self.scale_x.scale).sum()

    def _mixture(self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"]) -> GaussianMixture:
        K, d = self.components, len(self.scale_x.scale)
        logits, means, rest = self._outputs(layers, t)
        if self.factor == "precision":
            W = triangular_inverse(self._precision_factor(rest)[0])
            return GaussianMixture(jax.nn.log_softmax(logits), means, W @ W.transpose(0, 2, 1))
        diagonal, lower = jnp.split(rest, [K * d])
        spread = self._spread(diagonal.reshape(K, d))
        rows, columns = np.tril_indices(d, -1)
        L = jnp.tile(jnp.eye(d, dtype=rest.dtype), (K, 1, 1))
        L = spread[:, :, None] * L.at[:, rows, columns].set(_OFF_DIAGONAL * jnp.tanh(lower.reshape(K, -1)))
        covariances = L @ L.transpose(0, 2, 1) + self.floor**2 * jnp.eye(d, dtype=rest.dtype)
        return GaussianMixture(jax.nn.log_softmax(logits), means, covariances)

    def _outputs(
        self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"]
    ) -> tuple[Float[Array, " k"], Float[Array, "k d_x"], Float[Array, " k_entries"]]:
        """Logits of the weights, means, and what the factors are made of."""
        K, d = self.components, len(self.scale_x.scale)
        h = squash(t)
        for layer in layers[:-1]:
            h = jnp.tanh(layer(h))
        logits, means, rest = jnp.split(layers[-1](h), [K, K + K * d])
        return logits, means.reshape(K, d), rest

    def _spread(self, raw: Float[Array, "k d_x"]) -> Float[Array, "k d_x"]:
        """Between the floor and the ceiling."""
        low, high = math.log(self.floor), math.log(self.ceiling)
        return jnp.exp(low + (high - low) * jax.nn.sigmoid(raw))

    def _precision_factor(
        self, rest: Float[Array, " k_entries"]
    ) -> tuple[Float[Array, "k d_x d_x"], Float[Array, "k d_x"]]:
        """U, lower triangular, and s: the diagonal of U is 1 / s."""
        K, d = self.components, len(self.scale_x.scale)
        entries = rest.reshape(K, -1)
        # all entries of a triangle, each once, without a scatter: two copies in opposite order fill a square
        square = jnp.concatenate([entries[:, d:], entries[:, ::-1]], axis=1).reshape(K, d, d)
        spread = self._spread(jnp.diagonal(square, axis1=1, axis2=2))
        N = jnp.tril(_OFF_DIAGONAL * jnp.tanh(square), -1)
        return (N + jnp.eye(d, dtype=rest.dtype)) / spread[:, None, :], spread

    def _precision_log_probs(
        self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]
    ) -> Float[Array, " n"]:
        """log q(z_i | t) by products with the factors: neither a factorisation nor an inverse."""
        logits, means, rest = self._outputs(layers, t)
        U, spread = self._precision_factor(rest)
        u = (U[:, None] * (z - means[:, None])[:, :, None, :]).sum(axis=3)
        logs = (jax.nn.log_softmax(logits) - jnp.log(spread).sum(axis=1))[:, None] - 0.5 * (u**2).sum(axis=2)
        return jax.nn.logsumexp(logs, axis=0) - 0.5 * z.shape[1] * math.log(2 * math.pi)


class MixtureEnsemble(MixtureDensityNetwork):
    """Several networks with equal weights: the mixture of their mixtures. Arrays in `layers` have a row per network."""

    def _members(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        return eqx.filter_vmap(lambda layers: self._mixture(layers, t))(self.layers)

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the networks' coordinates, for standardised theta."""
        log_weights, means, covariances = self._members(t)
        d = means.shape[-1]
        return GaussianMixture(
            log_weights.ravel() - math.log(len(log_weights)), means.reshape(-1, d), covariances.reshape(-1, d, d)
        )

    def training_loss(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """The mean of -log q over the networks, so that each is trained independently."""
        if self.factor == "precision":
            each = eqx.filter_vmap(lambda layers: self._precision_log_probs(layers, t, z[None])[0])(self.layers)
            return -each.mean()
        return -jax.vmap(lambda member: member.smooth(0.0).log_prob(z[None])[0])(self._members(t)).mean()

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) of the averaged networks."""
        return MixtureDensity.network_log_prob(self, t, z)

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of the averaged networks at many points."""
        return MixtureDensity.log_probs(self, theta, x)


def init_mixture_density_network(
    key: PRNGKeyArray,
    scale_x: Standardiser,
    scale_theta: Standardiser,
    *,
    components: int,
    hidden: tuple[int, ...],
    floor: float,
    ceiling: float,
    ensemble: int = 1,
    factor: Factor = "covariance",
) -> MixtureDensityNetwork:
    """An untrained network, or an ensemble. The initial means of the components cover the bulk of the data."""

    def new_layers(key):
        return _layers(key, len(scale_x.scale), len(scale_theta.scale), components, hidden)

    options: dict[str, Any] = {
        "scale_x": scale_x, "scale_theta": scale_theta, "components": components, "floor": floor, "ceiling": ceiling,
        "factor": factor,
    }  # fmt: skip
    if ensemble > 1:
        return MixtureEnsemble(layers=eqx.filter_vmap(new_layers)(jax.random.split(key, ensemble)), **options)
    return MixtureDensityNetwork(layers=new_layers(key), **options)


def _layers(key: PRNGKeyArray, d_x: int, d_theta: int, K: int, hidden: tuple[int, ...]) -> tuple[eqx.nn.Linear, ...]:
    widths = (d_theta, *hidden, K * (1 + 2 * d_x + d_x * (d_x - 1) // 2))
    keys = jax.random.split(key, len(widths))
    layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(widths[:-1], widths[1:], keys[1:], strict=True)]
    means = slice(K, K + K * d_x)
    spread = jax.random.normal(keys[0], (K * d_x,))
    layers[-1] = eqx.tree_at(lambda layer: layer.bias, layers[-1], replace_fn=lambda bias: bias.at[means].set(spread))
    return tuple(layers)
