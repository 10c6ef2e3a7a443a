"""The mixture density network: a Gaussian mixture for x with parameters from a network of theta (Proposition 2)."""

import dataclasses
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
from nsmbayes._internal.precision import double_precision
from nsmbayes.surrogates.base import Density, Derivatives, Frame, Moments
from nsmbayes.surrogates.mixture import FEW_COLUMNS, GaussianMixture
from nsmbayes.surrogates.scaling import Standardiser, squash
from nsmbayes.surrogates.trend import Trend

OFF_DIAGONAL = 3.0  # with larger ratios covariances would have condition numbers above 1e10 and lose accuracy
_QUIET, _NEAR = 0.1, 0.5  # initial scales of the last weights and of the means in a network of precisions

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

    def moments(self, theta: Float[Array, " d_theta"]) -> Moments:
        """Mean and covariance of the mixture."""
        mean, covariance = self.mixture(self.scale_theta(theta)).moments()
        scale = self.scale_x.scale
        return Moments(self.scale_x.centre + scale * mean, scale[:, None] * covariance * scale)

    @double_precision
    def draw(
        self, theta: Float[np.ndarray, "k d_theta"], each: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "k each d_x"]:
        """`each` draws of x at every theta."""
        logs, means, covariances = (np.asarray(a) for a in _mixtures(self, jnp.asarray(theta)))
        k = np.arange(len(theta))[:, None]
        component = (logs[:, None] + rng.gumbel(size=(len(theta), each, logs.shape[1]))).argmax(axis=2)
        noise = rng.standard_normal((len(theta), each, means.shape[2], 1))
        z = means[k, component] + (np.linalg.cholesky(covariances)[k, component] @ noise)[..., 0]
        return np.asarray(self.scale_x.centre) + np.asarray(self.scale_x.scale) * z

    def derivatives_at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, ""] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y, for the mixture convolved with noise of standard deviation h."""
        return self.in_frame(theta, frame).smooth(h).derivatives

    def in_frame(self, theta: Float[Array, " d_theta"], frame: Frame) -> GaussianMixture:
        """The mixture in the coordinates y of a frame."""
        D = frame.basis / self.scale_x.scale[:, None]
        return self.mixture(self.scale_theta(theta)).pull_back(self.scale_x(frame.offset), D)

    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x d_x"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of an invertible `basis`."""
        score, laplacian = self.derivatives_at(theta, Frame(x, basis), 0.0)(jnp.zeros_like(x)[None])
        return Derivatives(score[0], laplacian[0])


@eqx.filter_jit
def _mixtures(density: MixtureDensity, theta: Float[Array, "k d_theta"]) -> GaussianMixture:
    return jax.vmap(lambda t: density.mixture(density.scale_theta(t)))(theta)


class MixtureDensityNetwork(MixtureDensity):
    """q(x | theta) = sum_k pi_k(theta) N(x; m_k(theta), S_k(theta)), in standardised coordinates.

    The network outputs a bounded triangular factor of the covariances or of the precisions, so that the eigenvalues of
    S_k lie between two positive constants for every theta:

    - factor="covariance": S_k = floor^2 I + L_k L_k', L_k = diag(s) (I + N), with floor <= s <= ceiling.
    - factor="precision": S_k^-1 = U_k' U_k, U_k = (I + N) diag(1 / s). The log density needs one product and no
      factorisation, so the cost of training is that of its arithmetic in any dimension.

    N is strictly lower triangular with bounded entries. theta is squashed smoothly, 3 tanh(t / 3), so that the network
    does not extrapolate in theta. With a trend, the mixture describes the residuals, see `surrogates.trend`.
    """

    layers: tuple[eqx.nn.Linear, ...]
    scale_x: Standardiser
    scale_theta: Standardiser
    components: int = eqx.field(static=True)
    floor: float = eqx.field(static=True)
    ceiling: float = eqx.field(static=True)
    factor: Factor = eqx.field(static=True, default="covariance")
    trend: Trend | None = None
    """The linear trend around which the mixture lies, if any."""

    def __check_init__(self):
        if self.scale_x.asinh:
            raise ValueError("x must be standardised by an affine map: the mixture is Gaussian in x.")

    @property
    def eigenvalue_bounds(self) -> tuple[float, float]:
        """Bounds on the eigenvalues of all covariances in standardised x, for every theta."""
        if self.trend is not None:
            low, high = dataclasses.replace(self, trend=None).eigenvalue_bounds
            sizes = np.linalg.svd(np.asarray(self.trend.factor), compute_uv=False)
            return low * sizes[-1] ** 2, high * sizes[0] ** 2
        d = len(self.scale_x.scale)
        if self.factor == "covariance":  # |L|_F^2: a diagonal up to the ceiling, and ratios below it
            return self.floor**2, self.floor**2 + self.ceiling**2 * d * (1 + OFF_DIAGONAL**2 * (d - 1) / 2)
        # bounds on |I + N|_F^2, and on that of its inverse, whose entries are at most c (1 + c)^(i - j - 1)
        c, below = OFF_DIAGONAL, np.arange(d - 1)
        squares = d + c**2 * d * (d - 1) / 2
        inverse = d + float(((d - 1 - below) * (c * (1 + c) ** below) ** 2).sum())
        return self.floor**2 / squares, self.ceiling**2 * inverse

    def mixture(self, t: Float[Array, " d_theta"]) -> GaussianMixture:
        """The mixture in the network's coordinates, for standardised theta."""
        return self._mixture(self.layers, t)

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates."""
        return self._log_probs(self.layers, t, z[None])[0]

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points, with one pass through the network."""
        logs = self._log_probs(self.layers, self.scale_theta(theta), self.scale_x(x))
        return logs - jnp.log(self.scale_x.scale).sum()

    def _log_probs(
        self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]
    ) -> Float[Array, " n"]:
        """log q(z_i | t) of one network, by the method that is fastest in training."""
        if self.trend is not None:
            around = (z - self.trend.at(t)) @ self.trend.inverse.T
            return dataclasses.replace(self, trend=None)._log_probs(layers, t, around) - self.trend.log_det
        if self.factor == "precision":
            return self._precision_log_probs(layers, t, z)
        if 1 < z.shape[1] <= FEW_COLUMNS:
            return self._covariance_log_probs(layers, t, z)
        return self._mixture(layers, t).smooth(0.0).log_prob(z)

    def _mixture(self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"]) -> GaussianMixture:
        if self.trend is not None:
            log_weights, means, covariances = dataclasses.replace(self, trend=None)._mixture(layers, t)
            L = self.trend.factor
            return GaussianMixture(log_weights, self.trend.at(t) + means @ L.T, L @ covariances @ L.T)
        K, d = self.components, len(self.scale_x.scale)
        logits, means, rest = self._outputs(layers, t)
        s, lower = self._spread_and_lower(rest)
        identity = jnp.eye(d, dtype=rest.dtype)
        if self.factor == "precision":
            W = triangular_inverse((_strictly_lower(lower, d) + identity) / s[:, None])
            return GaussianMixture(jax.nn.log_softmax(logits), means, W @ W.transpose(0, 2, 1))
        L = s[:, :, None] * jnp.tile(identity, (K, 1, 1)).at[:, *np.tril_indices(d, -1)].set(lower)
        covariances = L @ L.transpose(0, 2, 1) + self.floor**2 * identity
        return GaussianMixture(jax.nn.log_softmax(logits), means, covariances)

    def _outputs(
        self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"]
    ) -> tuple[Float[Array, " k"], Float[Array, "k d_x"], Float[Array, " k_entries"]]:
        """Logits of the weights, means, and raw entries of the factors."""
        K, d = self.components, len(self.scale_x.scale)
        h = squash(t)
        for layer in layers[:-1]:
            h = jnp.tanh(layer(h))
        logits, means, rest = jnp.split(layers[-1](h), [K, K + K * d])
        return logits, means.reshape(K, d), rest

    def _spread(self, raw: Float[Array, "k d_x"]) -> Float[Array, "k d_x"]:
        """`raw` mapped to spreads between the floor and the ceiling."""
        low, high = math.log(self.floor), math.log(self.ceiling)
        return jnp.exp(low + (high - low) * jax.nn.sigmoid(raw))

    def _spread_and_lower(
        self, rest: Float[Array, " k_entries"]
    ) -> tuple[Float[Array, "k d_x"], Float[Array, "k below"]]:
        """s, and the entries of N below the diagonal, row by row."""
        K, d = self.components, len(self.scale_x.scale)
        diagonal, lower = jnp.split(rest, [K * d])
        return self._spread(diagonal.reshape(K, d)), OFF_DIAGONAL * jnp.tanh(lower.reshape(K, -1))

    def _covariance_log_probs(
        self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]
    ) -> Float[Array, " n"]:
        """log q(z_i | t) from covariances whose Cholesky factors are written out: no matrix is formed or inverted.

        For few columns, where one library call per matrix would cost more than its few operations.
        """
        d = z.shape[1]
        logits, means, rest = self._outputs(layers, t)
        s, N = self._spread_and_lower(rest)
        F = [[s[:, i] * (N[:, i * (i - 1) // 2 + j] if j < i else 1.0) for j in range(i + 1)] for i in range(d)]
        C: list[list[Any]] = [[sum(F[i][k] * F[j][k] for k in range(j + 1)) for j in range(i + 1)] for i in range(d)]
        u, log_det = [], jnp.zeros_like(logits)
        for j in range(d):  # column j of the Cholesky factor replaces that of the covariance
            pivot = C[j][j] + self.floor**2 - sum(C[j][k] ** 2 for k in range(j))
            over, log_det = jax.lax.rsqrt(pivot), log_det + jnp.log(pivot)
            for i in range(j + 1, d):
                C[i][j] = (C[i][j] - sum(C[i][k] * C[j][k] for k in range(j))) * over
            residual = z[:, j] - means[:, j, None] - sum(C[j][k][:, None] * u[k] for k in range(j))
            u.append(residual * over[:, None])
        return _mixed(jax.nn.log_softmax(logits) - 0.5 * log_det, sum(column**2 for column in u), d)

    def _precision_log_probs(
        self, layers: tuple[eqx.nn.Linear, ...], t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]
    ) -> Float[Array, " n"]:
        """log q(z_i | t) by products with the factors, without a factorisation or an inverse."""
        logits, means, rest = self._outputs(layers, t)
        s, lower = self._spread_and_lower(rest)
        r = (z - means[:, None]) / s[:, None]
        u = r + jnp.einsum("kij,knj->kni", _strictly_lower(lower, z.shape[1]), r)
        return _mixed(jax.nn.log_softmax(logits) - jnp.log(s).sum(axis=1), (u**2).sum(axis=2), z.shape[1])


def _strictly_lower(entries: Float[Array, "k below"], d: int) -> Float[Array, "k d d"]:
    """Matrices with these entries below the diagonal and zeros elsewhere, computed without a scatter operation.

    Two copies of the entries in opposite order fill a square of d - 1 rows, whose lower triangle has each entry once.
    """
    square = jnp.concatenate([entries[:, d - 1 :], entries[:, ::-1]], axis=1).reshape(len(entries), d - 1, d - 1)
    return jnp.pad(jnp.tril(square), ((0, 0), (1, 0), (0, 1)))


def _mixed(log_scales: Float[Array, " k"], squares: Any, d: int) -> Float[Array, " n"]:
    """Log density of the mixture in d dimensions, given |u|^2 of each component at each point."""
    return jax.nn.logsumexp(log_scales[:, None] - 0.5 * squares, axis=0) - 0.5 * d * math.log(2 * math.pi)


class MixtureEnsemble(MixtureDensityNetwork):
    """Several networks with equal weights: a mixture of their mixtures. Arrays in `layers` have a row per network."""

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
        each = eqx.filter_vmap(lambda layers: self._log_probs(layers, t, z[None])[0])(self.layers)
        return -each.mean()

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
        spread = unit_spread(floor, ceiling) if factor == "precision" else None
        return _layers(key, len(scale_x.scale), len(scale_theta.scale), components, hidden, spread)

    options: dict[str, Any] = {
        "scale_x": scale_x, "scale_theta": scale_theta, "components": components, "floor": floor, "ceiling": ceiling,
        "factor": factor,
    }  # fmt: skip
    if ensemble > 1:
        return MixtureEnsemble(layers=eqx.filter_vmap(new_layers)(jax.random.split(key, ensemble)), **options)
    return MixtureDensityNetwork(layers=new_layers(key), **options)


def trend_alone(network: MixtureDensityNetwork, trend: Trend) -> MixtureDensityNetwork:
    """A trend with Gaussian noise, as a network with one component and one layer, zero except for a spread of one.

    The floor and ceiling of the network must allow a spread of one.
    """
    d_x, d_theta = len(network.scale_x.scale), len(network.scale_theta.scale)
    [layer] = jax.tree.map(jnp.zeros_like, _layers(jax.random.key(0), d_x, d_theta, 1, (), None))
    spread, one = slice(1 + d_x, 1 + 2 * d_x), math.log(-math.log(network.floor) / math.log(network.ceiling))
    layer = eqx.tree_at(lambda layer: layer.bias, layer, replace_fn=lambda bias: bias.at[spread].set(one))
    options = {name: getattr(network, name) for name in ("scale_x", "scale_theta", "floor", "ceiling")}
    return MixtureDensityNetwork(layers=(layer,), components=1, factor="precision", trend=trend, **options)


def unit_spread(floor: float, ceiling: float) -> float:
    """The network output that gives a spread of one, or close to one if the bounds do not allow one."""
    share = min(max(-math.log(floor) / math.log(ceiling / floor), 0.05), 0.95)
    return math.log(share / (1 - share))


def _layers(
    key: PRNGKeyArray, d_x: int, d_theta: int, K: int, hidden: tuple[int, ...], spread: float | None
) -> tuple[eqx.nn.Linear, ...]:
    """Random layers; with `spread`, components hardly depend on theta, lie close together and have unit covariance."""
    widths = (d_theta, *hidden, K * (1 + 2 * d_x + d_x * (d_x - 1) // 2))
    keys = jax.random.split(key, len(widths))
    *first, last = (eqx.nn.Linear(a, b, key=k) for a, b, k in zip(widths[:-1], widths[1:], keys[1:], strict=True))
    means, spreads = (slice(K + i * K * d_x, K + (i + 1) * K * d_x) for i in (0, 1))
    at, weight, bias = jax.random.normal(keys[0], (K * d_x,)), last.weight, jnp.asarray(last.bias)
    if spread is None:
        bias = bias.at[means].set(at)
    else:
        weight, bias = _QUIET * weight, jnp.zeros_like(bias).at[means].set(_NEAR * at).at[spreads].set(spread)
    return (*first, eqx.tree_at(lambda layer: (layer.weight, layer.bias), last, (weight, bias)))
