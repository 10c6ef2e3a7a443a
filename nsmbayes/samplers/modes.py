"""Minima of a smooth function of few parameters, by Newton's method from many starts; those of an energy are modes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision

_STEPS = 60
_HALVINGS = 10
_LONGEST = 1.0  # longest step, in units of the starts' spread
_DIFFERENCE = 1e-4  # step of the finite differences of gradients, in the same units
_SAME = 1e-2  # minima closer than this, in the same units, count as one
_SETTLED = 1e-10  # a path ends when the relative decrease of the function is smaller

Function = Callable[[Float[Array, " d"], Any], Float[Array, ""]]


class Minima(NamedTuple):
    """The distinct local minima found, lowest first, and how many starts led to each."""

    points: Float[np.ndarray, "k d"]
    values: Float[np.ndarray, " k"]
    starts: Int[np.ndarray, " k"]


class Descent(NamedTuple):
    """The end of Newton's method from each start."""

    points: Float[np.ndarray, "starts d"]
    values: Float[np.ndarray, " starts"]
    hessians: Float[np.ndarray, "starts d d"]


def minimise(function: Function, data: Any, starts: Float[np.ndarray, "starts d"]) -> Minima:
    """The distinct local minima of `function(position, data)` reached from the starts.

    A start is left out if its path ends where the function is not finite.

    Example:
        >>> def double_well(u, data):
        ...     return ((u[0] ** 2 - 1) ** 2 + 0.1 * u[0]).astype(float)
        >>> found = minimise(double_well, None, np.linspace(-2, 2, 8)[:, None])
        >>> found.points.round(2).tolist(), found.starts.tolist()
        ([[-1.01], [0.99]], [4, 4])
    """
    spread = np.maximum(starts.std(axis=0), 1e-12)
    ends, values, _ = descend(function, data, starts, spread)
    order = np.argsort(values)
    order = order[np.isfinite(values[order])]
    representatives: list[int] = []
    counts: list[int] = []
    for i in order:
        near = [np.abs((ends[i] - ends[j]) / spread).max() < _SAME for j in representatives]
        if any(near):
            counts[near.index(True)] += 1
        else:
            representatives.append(int(i))
            counts.append(1)
    return Minima(ends[representatives], values[representatives], np.asarray(counts))


@double_precision
def descend(
    function: Function, data: Any, starts: Float[np.ndarray, "starts d"], spread: Float[np.ndarray, " d"]
) -> Descent:
    """Newton's method from each start; `spread` is the scale of the parameters.

    A step uses the absolute values of the Hessian's eigenvalues, so that its direction is always downhill, and is
    halved until the function decreases. The Hessian is computed from differences of gradients: differentiating twice
    would take as long to run, and much longer to compile.
    """
    S, d = starts.shape

    def evaluate(v):
        values, gradients = map_rows(_value_and_gradient, v * spread, function, data)
        return np.where(np.isfinite(values), values, np.inf), gradients * spread

    def hessians(v):
        shifts = _DIFFERENCE * np.vstack([np.eye(d), -np.eye(d)])
        gradients = evaluate((v[:, None] + shifts).reshape(-1, d))[1].reshape(-1, 2, d, d)
        H = (gradients[:, 0] - gradients[:, 1]) / (2 * _DIFFERENCE)
        return 0.5 * (H + H.transpose(0, 2, 1))

    v = starts / spread
    values, gradients = evaluate(v)
    H = np.full((S, d, d), np.nan)
    going = np.isfinite(values)
    for _ in range(_STEPS):
        if not going.any():
            break
        rows = np.flatnonzero(going)
        H[rows] = hessians(v[rows])
        moves = np.stack([_newton_step(H[i], gradients[i]) for i in rows])
        before = values[rows].copy()
        for halving in range(_HALVINGS):
            tried, tried_gradients = evaluate(v[rows] + 0.5**halving * moves)
            better = tried < values[rows]
            fell = rows[better]
            v[fell] += 0.5**halving * moves[better]
            values[fell], gradients[fell] = tried[better], tried_gradients[better]
            rows, moves = rows[~better], moves[~better]
            if not rows.size:
                break
        started = np.flatnonzero(going)
        going[started] = before - values[started] > _SETTLED * (1 + np.abs(before))
    return Descent(v * spread, values, H / np.outer(spread, spread))


def _newton_step(H: Float[np.ndarray, "d d"], gradient: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    if not (np.isfinite(H).all() and np.isfinite(gradient).all()):
        return np.zeros_like(gradient)
    curvatures, axes = np.linalg.eigh(H)
    curvatures = np.maximum(np.abs(curvatures), 1e-8 * np.abs(curvatures).max() + 1e-300)
    move = -axes @ ((axes.T @ gradient) / curvatures)
    return move * min(1.0, _LONGEST / max(np.linalg.norm(move), 1e-300))


def _value_and_gradient(u, function, data):
    return jax.value_and_grad(lambda v: jnp.asarray(function(v, data), float))(u)
