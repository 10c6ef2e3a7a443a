"""Masked autoregressive flows: Proposition 3 with explicit constants, for any number of transforms.

The state h of the flow, its Jacobian and its second derivatives in z are bounded by polynomials in rho >= 1 + max|z_i|,
one transform after the other, by the product and chain rules. Every transform can raise the degree of the Jacobian by
one: the score of L transforms grows at most like rho^(L + 1), its derivative like rho^(2 L), and an inverse
multiquadric bounds this growth if zeta <= 2 / (L + 1). For L = 1 this is the paper's zeta <= 1. In one dimension
nothing is autoregressive, the Jacobian remains bounded, and zeta <= 2 is sufficient.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.growth import Growth, NotCovered, Polynomial
from nsmbayes.robustness.bounds.mixture import mixture_growth
from nsmbayes.robustness.bounds.networks import Layer, NetworkBounds, network_bounds
from nsmbayes.robustness.bounds.rounding import narrower, norm, up, wider
from nsmbayes.surrogates import Frame, MaskedAutoregressiveFlow, NoisyFlow
from nsmbayes.surrogates.sbi import Chain, MaskedAffine, Reorder

_PROBES = ((-1.5, 0.3, 0.8), (2.0, -1.0, -4.0), (0.1, 0.0, 3.0))  # z, mu and raw scale, to test transforms


class _Transform(NamedTuple):
    """u_i = (h_i - mu_i) / sigma_i, or the inverse u_i = sigma_i h_i + mu_i: bounds of mu, sigma and log sigma."""

    inverse: bool
    smallest: Float[np.ndarray, " d"]
    largest: Float[np.ndarray, " d"]
    shift: Float[np.ndarray, " d"]
    shift_1: Float[np.ndarray, "d d"]
    shift_2: Float[np.ndarray, "d d d"]
    log_1: Float[np.ndarray, "d d"]
    log_2: Float[np.ndarray, "d d d"]


class _State(NamedTuple):
    """Bounds of h, dh/dz and d^2h/dz^2, and of the derivatives of log |dh/dz|; the last axis holds coefficients."""

    h: Float[np.ndarray, "d degree"]
    first: Float[np.ndarray, "d d degree"]
    second: Float[np.ndarray, "d d d degree"]
    log_det_1: Float[np.ndarray, "d degree"]
    log_det_2: Float[np.ndarray, "d d degree"]


def flow_growth(flow: MaskedAutoregressiveFlow, frame: Frame, origin: Float[np.ndarray, " d_x"]) -> Growth:
    """Growth of the score and Laplacian in the coordinates y. Raises `NotCovered` if there is no proof."""
    log_q = _log_prob(flow)
    scale = np.asarray(flow.scale_x.scale)
    D = np.asarray(frame.basis) / scale[:, None]
    directions = np.abs(D.T if flow.probes is None else np.asarray(flow.probes) @ D.T)
    laplacian = np.einsum("vj,vk,jkn->n", directions, directions, log_q.hessian)
    if flow.probes is not None:
        laplacian = laplacian / len(directions)
    at = np.abs((origin - np.asarray(flow.scale_x.centre)) / scale).max()
    score = np.linalg.norm(np.tensordot(np.abs(D).T, log_q.gradient, 1), axis=0)
    return _growth(up(1 + float(at)), norm(D), score, laplacian, log_q.constants)


def noisy_flow_growth(flow: NoisyFlow, frame: Frame, origin: Float[np.ndarray, " d_x"], level: float) -> Growth:
    """Growth for a flow with the noise level as an input, at one level. Raises `NotCovered` if there is no proof.

    The input of its transforms is v = E (y - m), where E' E is the inverse of the base's smoothed covariance in y:
    |E|^2 is at most 1/lambda, and |m - y0| at most the reach of the base's mean, for every theta (see
    `mixture_growth`). The bounds of the transforms hold for all conditions. So |v| <= (|y - y0| + reach) /
    sqrt(lambda), the score is at most |E| |g| and the Laplacian, tr(E' H E), at most |E|^2 sqrt(d) |H|_F, with g and H
    the gradient and Hessian of log q in v.
    """
    log_q = _log_prob(flow)
    base = mixture_growth(flow.base, frame, origin, level)
    stretch = up(1 / math.sqrt(base.constants["lambda_min"]))
    score = stretch * np.linalg.norm(log_q.gradient, axis=0)
    laplacian = stretch**2 * math.sqrt(len(origin)) * np.linalg.norm(log_q.hessian, axis=(0, 1))
    return _growth(up(1 + base.a * stretch), stretch, score, laplacian, base.constants | log_q.constants)


def _growth(a: float, b: float, score: Polynomial, laplacian: Polynomial, constants: dict[str, float]) -> Growth:
    squares = np.convolve(score, score)
    together = squares + np.pad(2 * laplacian, (0, len(squares) - len(laplacian)))
    bounds = {"laplacian_below": wider(laplacian), "laplacian_above": wider(laplacian), "together": wider(together)}
    return Growth(a=a, b=b, score=wider(score), **bounds, constants=constants)


class _LogProb(NamedTuple):
    """Bounds of the derivatives of log q in the input of the first transform, as polynomials in rho."""

    gradient: Float[np.ndarray, "d degree"]
    hessian: Float[np.ndarray, "d d degree"]
    constants: dict[str, float]


def _log_prob(flow: MaskedAutoregressiveFlow | NoisyFlow) -> _LogProb:
    if flow.activation != "tanh":
        raise NotCovered(
            f"its activation is {flow.activation}, which is unbounded; Proposition 3 needs tanh", smooth=True
        )
    steps = _steps(flow)
    transforms = [step for step in steps if isinstance(step, _Transform)]
    d = len(flow.scale_x.scale)
    width = 2 * len(transforms) + 2  # degrees 0 to 2 L + 1, which is higher than needed
    h = np.zeros((d, width))
    h[:, 1] = 1
    identity = np.zeros((d, d, width))
    identity[..., 0] = np.eye(d)
    nothing = np.zeros((d, d, d, width))
    state = _State(h, identity, nothing, nothing[0, 0], nothing[0])
    for step in steps:
        state = _after(state, step) if isinstance(step, _Transform) else state._replace(
            h=state.h[step], first=state.first[step], second=state.second[step]
        )  # fmt: skip
    gradient = _times(state.h[:, None], state.first).sum(axis=0) + state.log_det_1
    hessian = (
        _times(state.first[:, :, None], state.first[:, None, :]) + _times(state.h[:, None, None], state.second)
    ).sum(axis=0) + state.log_det_2
    constants = {
        "transforms": float(len(transforms)),
        "sigma_L": min(float(t.smallest.min()) for t in transforms),
        "sigma_U": max(float(t.largest.max()) for t in transforms),
    }
    return _LogProb(gradient, hessian, constants)


def _times(p: Float[np.ndarray, "*a degree"], q: Float[np.ndarray, "*b degree"]) -> Float[np.ndarray, "*c degree"]:
    """Elementwise product of polynomials; the highest degree is sufficient for all products needed here."""
    out = np.zeros(np.broadcast_shapes(p.shape, q.shape))
    for i in np.flatnonzero(p.any(axis=tuple(range(p.ndim - 1)))):
        out[..., i:] += p[..., i, None] * q[..., : q.shape[-1] - i]
    return out


def _chain(outer: Float[np.ndarray, "a b degree"], inner: Float[np.ndarray, "b *c degree"]) -> np.ndarray:
    """sum_b outer_ab inner_b."""
    extra = inner.ndim - 2
    return _times(outer.reshape(*outer.shape[:2], *(1,) * extra, outer.shape[2]), inner[None]).sum(axis=1)


def _after(state: _State, t: _Transform) -> _State:
    """The bounds after one more transform, by the product and chain rules."""
    d, width = state.h.shape
    delta = np.eye(d)

    def constant(value: np.ndarray) -> np.ndarray:
        return np.concatenate([value[..., None], np.zeros((*value.shape, width - 1))], axis=-1)

    log_1, log_2 = constant(t.log_1), constant(t.log_2)
    if t.inverse:  # u = sigma h + mu
        sigma = t.largest[:, None]
        moved = sigma * state.h  # bound of sigma_i h_i
        u = moved + constant(t.shift)
        first = constant(sigma * delta + t.shift_1) + _times(moved[:, None], log_1)
        bend = _times(log_1[:, :, None], log_1[:, None, :]) + log_2
        second = _times(moved[:, None, None], bend) + constant(
            t.shift_2
            + sigma[..., None] * (delta[:, :, None] * t.log_1[:, None, :] + delta[:, None, :] * t.log_1[:, :, None])
        )
    else:  # u = (h - mu) / sigma
        over = 1 / t.smallest[:, None]
        u = over * (state.h + constant(t.shift))
        plain = over * (delta + t.shift_1)  # bound of (dh_i - dmu_i) / sigma_i
        first = constant(plain) + _times(u[:, None], log_1)
        second = (
            constant(over[..., None] * t.shift_2 + plain[:, :, None] * t.log_1[:, None, :])
            + _times(first[:, None, :], log_1[:, :, None])
            + _times(u[:, None, None], log_2)
        )

    def curvature(outer_1: np.ndarray, outer_2: np.ndarray) -> np.ndarray:
        half = _chain(outer_2.reshape(-1, d, width), state.first).reshape(len(outer_2), d, d, width)
        bent = _times(half[:, :, None, :], state.first[None, :, :, None]).sum(axis=1)
        return bent + _chain(outer_1, state.second)

    return _State(
        h=u,
        first=_chain(first, state.first),
        second=curvature(first, second),
        log_det_1=state.log_det_1 + _chain(log_1, state.first).sum(axis=0),
        log_det_2=state.log_det_2 + curvature(log_1, log_2).sum(axis=0),
    )


def _steps(flow: MaskedAutoregressiveFlow | NoisyFlow) -> list[_Transform | np.ndarray]:
    """The transforms and the reorderings between them."""
    d = len(flow.scale_x.scale)
    if type(flow.transform) is Chain:  # converted from sbi
        return [_of_sbi(part) for part in flow.transform.parts]
    import flowjax.bijections as bijections
    import paramax

    if type(flow.transform) is not bijections.Chain:
        raise NotCovered("it is not a chain of transforms that this package has built")
    steps: list[_Transform | np.ndarray] = []
    for part in flow.transform.bijections:
        if type(part) is bijections.Flip:
            steps.append(np.arange(d)[::-1])
        elif type(part) is bijections.MaskedAutoregressive:
            net = paramax.unwrap(part.masked_autoregressive_mlp)
            layers = [(np.asarray(layer.weight, float), np.asarray(layer.bias, float)) for layer in net.layers]
            if len(layers) < 2:
                raise NotCovered("a transform has no hidden layer, so that nothing bounds it", smooth=True)
            if net.activation is not jnp.tanh:
                raise NotCovered("a hidden layer is not tanh; Proposition 3 needs tanh")
            if len(layers[-1][1]) != 2 * d or not _is_affine(part, flow.floor):
                raise NotCovered("a transform is not affine with a softplus scale, and may have only one derivative")
            mu, raw = slice(0, None, 2), slice(1, None, 2)  # the outputs come in pairs
            offset = math.log(math.expm1(1 - flow.floor))
            steps.append(_bounds(network_bounds(layers, d), mu, raw, offset, flow.floor, inverse=False))
        else:
            raise NotCovered(f"it has a {type(part).__name__} transform, which Proposition 3 is not about")
    return steps


def _of_sbi(part: Any) -> _Transform | np.ndarray:
    if type(part) is Reorder:
        return np.asarray(part.order)
    if type(part) is not MaskedAffine:
        raise NotCovered(f"it has a {type(part).__name__} transform, which Proposition 3 is not about")
    layers: list[Layer] = [(np.asarray(a.W), np.asarray(a.b)) for a in (part.first, *part.blocks, part.last)]
    W, b = layers[0]
    d = W.shape[1]
    layers[0] = np.hstack([W, np.eye(len(W))]), b  # theta adds a number of any size to each unit
    raw, mu = slice(0, None, 2), slice(1, None, 2)
    return _bounds(network_bounds(layers, d), mu, raw, 0.0, part.epsilon, inverse=True)


def _bounds(net: NetworkBounds, mu: slice, raw: slice, offset: float, floor: float, *, inverse: bool) -> _Transform:
    """Bounds of a transform with sigma = softplus(raw + offset) + floor.

    |d log sigma / d raw| and its derivative are at most 1.
    """

    def sigma(raw: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return np.logaddexp(0, raw + offset) + floor

    first, second = net.first[raw], net.second[raw]
    return _Transform(
        inverse=inverse,
        smallest=narrower(sigma(net.low[raw])),
        largest=wider(sigma(net.high[raw])),
        shift=np.maximum(np.abs(net.low[mu]), np.abs(net.high[mu])),
        shift_1=net.first[mu],
        shift_2=net.second[mu],
        log_1=first,
        log_2=first[:, :, None] * first[:, None, :] + second,
    )


def _is_affine(part: Any, floor: float) -> bool:
    """Whether the transform with two parameters is (z - mu) / (softplus(raw + offset) + floor)."""
    import paramax

    offset = math.log(math.expm1(1 - floor))
    with jax.enable_x64(True):
        for z, mu, raw in _PROBES:
            made = paramax.unwrap(part.transformer_constructor(jnp.array([mu, raw])))
            u = float(made.transform_and_log_det(jnp.asarray(z))[0])
            if abs(u - (z - mu) / (np.logaddexp(0, raw + offset) + floor)) > 1e-5 * (1 + abs(u)):
                return False
    return True
