"""Exponential families of one-layer tanh networks: Theorem 3 with explicit constants, for any bounded weight.

T and b are V tanh(W z + c). All their derivatives are bounded for every c, so the bounds hold at every noise level of a
family with the level as an additional input.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.networks import TANH_CURVATURE
from nsmbayes.robustness.bounds.rounding import norm, up
from nsmbayes.surrogates import ExponentialFamily, Standardiser

_ASINH_BEND = 2 / (3 * np.sqrt(3))  # sup s / (1 + s^2)^(3/2), at s^2 = 1/2


class Derivatives(NamedTuple):
    """Bounds over all x of derivatives in the coordinates y, in the Frobenius norm."""

    first: float
    second: float
    laplacian: float


class FamilyBounds(NamedTuple):
    """Bounds of the derivatives of T and b, for theta in the user's units."""

    T: Derivatives
    b: Derivatives
    score: float
    """of |dT' theta + db| at one given theta"""
    score_slope: float
    """of the derivative of the score at that theta"""


def family_bounds(
    family: ExponentialFamily,
    basis: Float[np.ndarray, "d_x d_x"],
    theta: Float[np.ndarray, " d_theta"],
    change: Float[np.ndarray, "d_theta d_theta"] | None = None,
) -> FamilyBounds:
    """Bounds in the coordinates y of x = L y, L the `basis`; `score` is at `theta`, and `change` @ T replaces T."""
    d_x, scale = len(family.scale_x.scale), np.asarray(family.scale_x.scale)
    D = basis / scale[:, None]  # bound of dz/dy; asinh only makes it smaller
    squares = (basis**2).sum(axis=1) / scale**2  # bound of a second derivative of z_i, up to a factor
    bend = _ASINH_BEND * squares if family.scale_x.asinh else np.zeros(d_x)
    W, c_theta = [np.asarray(net.W)[:, :d_x] for net in (family.T, family.b)], np.asarray(family.scale_theta.centre)
    V = np.asarray(family.T.V) / np.asarray(family.scale_theta.scale)[:, None]
    V_b = np.asarray(family.b.V)
    # b is the output of the network minus the centre of theta times T, plus the logarithm of the slope of z
    of_T = _of_network(V if change is None else change @ V, W[0], D, bend)
    of_b = _of_network(V_b, W[1], D, bend)
    of_centre, at_theta = (_of_network(t[None] @ V, W[0], D, bend) for t in (c_theta, theta - c_theta))
    jacobian = _of_jacobian(family.scale_x, basis)
    both = Derivatives(*(up(a + b + c) for a, b, c in zip(of_b, of_centre, jacobian, strict=True)))
    score, slope = (up(a + b + c) for a, b, c in zip(at_theta[:2], of_b[:2], jacobian[:2], strict=True))
    return FamilyBounds(of_T, both, score, slope)


def _of_network(
    V: Float[np.ndarray, "out hidden"],
    W: Float[np.ndarray, "hidden d"],
    D: Float[np.ndarray, "d d"],
    bend: Float[np.ndarray, " d"],
) -> Derivatives:
    """Bounds for V h with h = tanh(W z(y) + c).

    dh_u = (1 - h_u^2) W_u D and d2h_u = tanh'' (W_u D)' (W_u D) + (1 - h_u^2) W_u d2z. With a bend, the slopes of z
    can have any value in [0, 1], and W_u diag(slopes) D is bounded in two ways.
    """
    J = np.linalg.norm(W @ D, axis=1)
    if bend.any():
        J = np.minimum(np.abs(W) @ np.linalg.norm(D, axis=1), np.linalg.norm(W, axis=1) * norm(D))
    curvature = TANH_CURVATURE * J**2 + np.abs(W) @ bend
    first, second = (through(V, units) for units in (J, curvature))
    return Derivatives(first, second, second)


def through(V: Float[np.ndarray, "out hidden"], units: Float[np.ndarray, " hidden"]) -> float:
    """Bound of |V X|_F if the rows of X have norms of at most `units`: by the triangle inequality, or |V| |X|_F."""
    return up(min(float(np.linalg.norm(V, axis=0) @ units), norm(V) * float(np.linalg.norm(units))))


def _of_jacobian(scale_x: Standardiser, basis: Float[np.ndarray, "d_x d_x"]) -> Derivatives:
    """Bounds for log dz/dx = -log(1 + s^2) / 2: |first| <= 1/2 and |second| <= 1 in s, for each coordinate."""
    if not scale_x.asinh:
        return Derivatives(0.0, 0.0, 0.0)
    D = basis / np.asarray(scale_x.scale)[:, None]
    rows = np.linalg.norm(D, axis=1)
    second = up(float((rows**2).sum()))
    return Derivatives(up(0.5 * float(rows.sum())), second, second)
