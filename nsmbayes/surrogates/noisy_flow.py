"""A normalising flow with the noise on x as an input, for losses summed over noise levels."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._internal.linalg import inverse_factor
from nsmbayes.surrogates.base import Density, Derivatives, Frame
from nsmbayes.surrogates.maf import affine_autoregressive, flow_log_prob, require_several_dimensions
from nsmbayes.surrogates.mdn import MixtureDensityNetwork, init_mixture_density_network
from nsmbayes.surrogates.scaling import Standardiser, squash

_RESOLVED = 0.01  # noise below this fraction of the spread of x given theta is hardly distinguished from no noise
_FLOOR = 0.01  # smallest scale of a transform


class Placed(NamedTuple):
    """The flow for one theta and one noise covariance: it transforms v = whiten (z - mean), given a condition."""

    mean: Float[Array, " d_x"]
    whiten: Float[Array, "d_x d_x"]
    log_det: Float[Array, ""]
    """log |det whiten|."""
    condition: Float[Array, " k"]


class NoisyFlow(Density):
    """log q_N(x | theta), the density of x plus Gaussian noise, for noise of any covariance N in standardised x.

    The base is a conditional Gaussian with mean m and covariance S, both networks of theta. It is smoothed exactly:
    with K K' = S + N, v = K^-1 (z - m) is standard normal if x given theta is Gaussian, for any noise. Affine
    autoregressive transforms of v (see `MaskedAutoregressiveFlow`) model the deviation from a Gaussian. Their inputs
    are theta, squashed, and the fraction of the variance of v that is noise, the matrix K^-1 N K^-T. All parts are
    trained on noisy simulations.
    """

    smoothable: ClassVar[bool] = True

    base: MixtureDensityNetwork  # with one component
    transform: Any  # a FlowJAX bijection from v to u
    levels: tuple[float, float] = eqx.field(static=True)  # the smallest and the largest noise level in training
    floor: ClassVar[float] = _FLOOR
    activation: ClassVar[str] = "tanh"

    @property
    def scale_x(self) -> Standardiser:
        """The standardiser of x."""
        return self.base.scale_x

    @property
    def scale_theta(self) -> Standardiser:
        """The standardiser of theta."""
        return self.base.scale_theta

    def placed(self, t: Float[Array, " d_theta"], C: Float[Array, "d_x d_x"]) -> Placed:
        """The flow for standardised theta and noise of covariance C C' on standardised x."""
        _, means, covariances = self.base.mixture(t)
        whiten, log_det = inverse_factor(covariances[0] + C @ C.T)
        condition = jnp.concatenate([squash(t), _noise_inputs(whiten @ C)])
        return Placed(means[0], whiten, -0.5 * log_det, condition)

    def noisy_log_prob(
        self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"], C: Float[Array, "d_x d_x"]
    ) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates, for noise of covariance C C'."""
        placed = self.placed(t, C)
        v = placed.whiten @ (z - placed.mean)
        return flow_log_prob(self.transform, v, placed.condition) + placed.log_det

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates, without noise."""
        return self.noisy_log_prob(t, z, jnp.zeros((len(z), len(z)), z.dtype))

    def log_prob(self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(x | theta), without noise."""
        return self.network_log_prob(self.scale_theta(theta), self.scale_x(x)) - jnp.log(self.scale_x.scale).sum()

    def training_loss(self, t: Float[Array, " d_theta"], z: Float[Array, " d_seen"]) -> Float[Array, ""]:
        """-log q of a noisy simulation plus -log of the base density; z contains the simulation and its noise factor C.

        Each part is trained by its own term: the base becomes the best Gaussian regardless of the transforms, and the
        transforms learn the rest. With a common loss, the transforms would compensate for a wrong base, which would
        then never be corrected.
        """
        d = len(self.scale_x.scale)
        placed = self.placed(t, z[d:].reshape(d, d))
        v = placed.whiten @ (z[:d] - placed.mean)
        base = placed.log_det - 0.5 * (v @ v) - 0.5 * d * math.log(2 * math.pi)
        v, condition, log_det = jax.lax.stop_gradient((v, placed.condition, placed.log_det))
        return -base - flow_log_prob(self.transform, v, condition) - log_det

    def derivatives_at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, ""] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y, with noise of standard deviation h in y."""
        D = frame.basis / self.scale_x.scale[:, None]
        placed = self.placed(self.scale_theta(theta), h * D)

        def derivatives(y: Float[Array, "n d_x"]) -> Derivatives:
            v = placed.whiten @ (self.scale_x(frame.offset + y @ frame.basis.T) - placed.mean).T
            seen = _Jet(v, list((placed.whiten @ D).T[:, :, None]), jnp.zeros_like(v[:, :1]))
            return _flow_derivatives(self.transform, seen, placed.condition)

        return derivatives

    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of `basis`, without noise."""
        score, laplacian = self.derivatives_at(theta, Frame(x, basis), 0.0)(jnp.zeros((1, basis.shape[1]), x.dtype))
        return Derivatives(score[0], laplacian[0])


def _noise_inputs(F: Float[Array, "d d"]) -> Float[Array, " k"]:
    """Inputs of the transforms for noise F e, e standard normal: logarithms of its scales, and its correlations."""
    R = F @ F.T
    variances = jnp.diag(R) + _RESOLVED**2
    rows, columns = jnp.tril_indices(len(R), -1)
    correlations = R[rows, columns] / jnp.sqrt(variances[rows] * variances[columns])
    return jnp.concatenate([0.5 * jnp.log(variances), correlations])


class _Jet(NamedTuple):
    """Functions of y with their gradients and Laplacians at n points; arrays that are constant in y have one column.

    Values, gradients and Laplacians pass through the flow together, so no Hessian is computed: automatic
    differentiation would compute the full Hessian, but only its trace is needed. The components of the gradient are
    separate arrays, because otherwise XLA would recompute their common parts for each. Points are on the last axis,
    which vectorises best.
    """

    value: Float[Array, "width n"]
    gradient: list[Float[Array, "width n_or_1"]]
    laplacian: Float[Array, "width n_or_1"]

    def linear(self, function: Callable[[Float[Array, "width n_or_1"]], Float[Array, "out n_or_1"]]) -> "_Jet":
        """A linear function of the values."""
        return _Jet(function(self.value), [function(g) for g in self.gradient], function(self.laplacian))

    def affine(self, W: Float[Array, "out width"], b: Float[Array, " out"]) -> "_Jet":
        """W f + b."""
        moved = self.linear(lambda f: W @ f)
        return moved._replace(value=moved.value + b[:, None])

    def tanh(self) -> "_Jet":
        """tanh f."""
        h = jnp.tanh(self.value)
        slope = 1 - h**2
        gradient = [slope * g for g in self.gradient]
        # not slope times squares: for distant points the slope is zero and a square can be infinite
        return _Jet(h, gradient, slope * self.laplacian - 2 * h * _dot(gradient, self.gradient))

    def log_scale(self) -> "_Jet":
        """g = log sigma, sigma = softplus(f + shift) + floor."""
        s = self.value + math.log(math.expm1(1 - _FLOOR))
        slope, sigma = jax.nn.sigmoid(s), jax.nn.softplus(s) + _FLOOR
        first = slope / sigma
        second = first * (1 - slope) - first**2
        return _Jet(
            jnp.log(sigma),
            [first * g for g in self.gradient],
            first * self.laplacian + second * _dot(self.gradient, self.gradient),
        )

    def standardised(self, mu: "_Jet", log_scale: "_Jet") -> "_Jet":
        """u = r exp(-g), r = f - mu and g = log sigma.

        du = exp(-g) dr - u dg and lap u = exp(-g) lap r - dg' (2 du + u dg) - u lap g.
        """
        over, dg = jnp.exp(-log_scale.value), log_scale.gradient
        u = (self.value - mu.value) * over
        du = [(a - b) * over - u * c for a, b, c in zip(self.gradient, mu.gradient, dg, strict=True)]
        both = [2 * a + u * b for a, b in zip(du, dg, strict=True)]
        return _Jet(u, du, (self.laplacian - mu.laplacian) * over - _dot(dg, both) - u * log_scale.laplacian)


def _dot(a: list[Float[Array, "..."]], b: list[Float[Array, "..."]]) -> Any:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _flow_derivatives(transform: Any, v: _Jet, condition: Float[Array, " k"]) -> Derivatives:
    """Score and Laplacian of log N(u; 0, I) + log |du/dv|."""
    from paramax import unwrap

    d = len(v.value)
    log_scales = []
    for part in transform.bijections[::2]:
        first, *others = unwrap(part.masked_autoregressive_mlp).layers
        f = v.affine(first.weight[:, :d], first.bias + first.weight[:, d:] @ condition)
        for layer in others:
            f = f.tanh().affine(layer.weight, layer.bias)
        log_scales.append(f.linear(lambda out: out[1::2]).log_scale())
        v = v.standardised(f.linear(lambda out: out[::2]), log_scales[-1]).linear(lambda u: u[::-1])
    score = [-(v.value * du + sum(g.gradient[k] for g in log_scales)).sum(axis=0) for k, du in enumerate(v.gradient)]
    squares = _dot(v.gradient, v.gradient) + v.value * v.laplacian
    return Derivatives(jnp.stack(score, axis=1), -(squares + sum(g.laplacian for g in log_scales)).sum(axis=0))


def init_noisy_flow(
    key: PRNGKeyArray,
    scale_x: Standardiser,
    scale_theta: Standardiser,
    *,
    hidden: int,
    base_hidden: tuple[int, ...],
    floor: float,
    ceiling: float,
    levels: tuple[float, float],
    transforms: int = 3,
    depth: int = 1,
) -> NoisyFlow:
    """An untrained flow: its transforms are the identity, so it equals its base at every noise level.

    Args:
        key: for the weights.
        scale_x: standardiser of x, affine.
        scale_theta: standardiser of theta.
        hidden: width of the hidden layers of the transforms.
        base_hidden: widths of the hidden layers of the base.
        floor: smallest standard deviation of the base.
        ceiling: largest diagonal entry of the covariance factor of the base.
        levels: the smallest and the largest noise level in training.
        transforms: number of autoregressive transforms.
        depth: number of hidden layers of each transform.
    """
    d_x, d_theta = len(scale_x.scale), len(scale_theta.scale)
    require_several_dimensions(d_x)
    key_base, key_flow = jax.random.split(key)
    transform = affine_autoregressive(
        key_flow,
        d_x,
        d_theta + d_x * (d_x + 1) // 2,
        transforms=transforms,
        hidden=hidden,
        depth=depth,
        floor=_FLOOR,
        activation="tanh",
    )
    return NoisyFlow(
        base=init_mixture_density_network(
            key_base, scale_x, scale_theta, components=1, hidden=base_hidden, floor=floor, ceiling=ceiling
        ),
        transform=eqx.tree_at(_last_layers, transform, replace_fn=_silent),
        levels=levels,
    )


def _last_layers(transform: Any) -> list[Any]:
    return [part.masked_autoregressive_mlp.layers[-1] for part in transform.bijections[::2]]


def _silent(layer: Any) -> Any:
    return jax.tree.map(lambda a: jnp.zeros_like(a) if eqx.is_inexact_array(a) else a, layer)
