"""Noise levels: the score-matching loss is summed over the data and the model smoothed by noise of several sizes.

With p_h = p * N(0, h^2 I), de Bruijn's identity says KL(p || q) = integral over log h of h^2 FD(p_h || q_h), where FD
is the Fisher divergence that score matching estimates. So the loss summed over log-spaced levels with coefficients
h^2 (spacing of log h) estimates the log likelihood: low levels give precision, high levels keep the loss from being
flat far from its minimum, and no level rewards a spike on a data point. The single level 0 is the paper's loss.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from nsmbayes import _checks
from nsmbayes._checks import InputError

DEFAULT_LEVELS = tuple(0.1 * 2.0**i for i in range(7))
_STEPS = 2  # lattice points to a standard deviation of the noise
_REACH = 4  # standard deviations of the noise beyond which nothing is counted
_FAR = 1e6  # standard deviations of the noise from the origin beyond which the noise itself is nothing


class NoisyPoints(NamedTuple):
    """Points that stand for noisy observations: the sum over levels of coefficient_l E f_l(y_i + h_l e), e ~ N(0, I).

    It is sum_k share[i, k] f(point[i, k]), with f at the point's own level. Points come in groups of the same
    size; a group is one level (h has one column) or holds points of all levels (h has one column a point).
    """

    h: Float[np.ndarray, "groups points_or_1"]
    y: Float[np.ndarray, "groups points d"]
    point: Int[np.ndarray, "n terms"]
    share: Float[np.ndarray, "n terms"]

    def total_shares(self) -> Float[np.ndarray, "groups points"]:
        """What each point counts for all observations together."""
        shape = self.y.shape[:2]
        return np.bincount(self.point.ravel(), self.share.ravel(), minlength=shape[0] * shape[1]).reshape(shape)


def noisy_points(levels: Any, y: Float[np.ndarray, "n d"]) -> NoisyPoints:
    """The points for observations y, with noise levels in the units of y.

    In one dimension they are lattices that observations share, so that their number hardly grows with n; the error is
    below 1e-3 for an f as narrow as the noise (a test). Otherwise each observation has nodes of its own around it.
    """
    h = check_levels(levels)
    if h[0] == 0:
        return _on_nodes(h, np.ones(1), y, np.zeros((1, y.shape[1])), np.ones(1))
    coefficients = h**2 * (np.gradient(np.log(h)) if len(h) > 1 else 1.0)
    return (
        _on_lattices(h, coefficients, y)
        if y.shape[1] == 1
        else _on_nodes(h, coefficients, y, *_degree_five(y.shape[1]))
    )


def check_levels(levels: Any) -> Float[np.ndarray, " levels"]:
    """`levels` as (0,), the paper's, or as increasing positive numbers."""
    h = _checks.vector(levels, "levels")
    if len(h) == 0 or (h < 0).any() or (np.diff(h) <= 0).any() or (len(h) > 1 and h[0] == 0):
        raise InputError(f"`levels` must be (0,) or increasing positive noise levels; got {tuple(h.tolist())}.")
    return h


def _on_nodes(h, coefficients, y, nodes, node_weights) -> NoisyPoints:
    """Every observation with the same nodes around it; one group a level."""
    n, d = y.shape
    points = y[None, :, None, :] + h[:, None, None, None] * nodes
    index = np.arange(len(h) * n * len(nodes)).reshape(len(h), n, len(nodes)).transpose(1, 0, 2).reshape(n, -1)
    share = np.outer(coefficients, node_weights).ravel()
    return NoisyPoints(h[:, None], points.reshape(len(h), -1, d), index, np.tile(share, (n, 1)))


def _on_lattices(h, coefficients, y) -> NoisyPoints:
    """One lattice a level, kept where observations are near, with the trapezoidal rule on it."""
    offsets = np.arange(-_STEPS * _REACH, _STEPS * _REACH + 1)
    of_level, indices, shares, count = [], [], [], 0
    for level, coefficient in zip(h, coefficients, strict=True):
        step = level / _STEPS
        places = np.where(np.abs(y) < _FAR * level, step * (np.rint(y / step) + offsets), y)
        points, index = np.unique(places, return_inverse=True)
        share = np.exp(-0.5 * ((places - y) / level) ** 2)
        indices.append(index.reshape(places.shape) + count)
        shares.append(coefficient * share / share.sum(axis=1, keepdims=True))
        of_level.append(np.stack([np.full(len(points), level), points]))
        count += len(points)
    padded = np.zeros((2, _round_up(count)))
    padded[0] = h[-1]
    padded[:, :count] = np.concatenate(of_level, axis=1)
    return NoisyPoints(
        padded[:1], padded[1][None, :, None], np.concatenate(indices, axis=1), np.concatenate(shares, axis=1)
    )


def _round_up(count: int) -> int:
    """The next power of two: data sets with about as many points then share a compilation."""
    return 2 ** math.ceil(math.log2(max(count, 64)))


def _degree_five(d: int) -> tuple[Float[np.ndarray, "nodes d"], Float[np.ndarray, " nodes"]]:
    """2 d^2 + 1 nodes that integrate polynomials of degree five against N(0, I): origin, axes, diagonals of planes."""
    axes = np.sqrt(d + 2.0) * np.vstack([np.eye(d), -np.eye(d)])
    diagonals = []
    for i in range(d):
        for j in range(i):
            for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                node = np.zeros(d)
                node[i], node[j] = a, b
                diagonals.append(node * np.sqrt((d + 2) / 2))
    nodes = np.vstack([np.zeros((1, d)), axes, np.asarray(diagonals).reshape(-1, d)])
    weights = np.concatenate(
        [[2 / (d + 2)], np.full(2 * d, (4 - d) / (2 * (d + 2) ** 2)), np.full(len(diagonals), 1 / (d + 2) ** 2)]
    )
    return nodes, weights
