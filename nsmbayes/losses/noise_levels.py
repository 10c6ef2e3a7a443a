"""Noise levels: the score-matching loss of data and model, both smoothed by noise, is summed over several noise levels.

With p_h = p * N(0, h^2 I), de Bruijn's identity says KL(p || q) = integral over log h of h^2 FD(p_h || q_h), where FD
is the Fisher divergence that score matching estimates. So the loss summed over log-spaced levels with coefficients
h^2 (spacing of log h) estimates the log likelihood: low levels give precision, high levels keep the loss from being
flat far from its minimum, and no level rewards a spike on a data point. The single level 0 is the loss of the paper.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.stats import chi

from nsmbayes._internal import checks
from nsmbayes.errors import InputError

DEFAULT_NOISE_LEVELS = tuple(0.1 * 2.0**i for i in range(7))
_STEPS = 2  # lattice points per standard deviation of the noise
_REACH = 4  # in standard deviations: noise beyond this is neglected
_AXES = 4  # largest number of axes for the noise of an observation; docs/noise-levels.md measures the error
ROW = 32
"""Number of lattice points in a row."""
_WIDEST = 1e6  # largest noise level
_FAR = 1e6  # in standard deviations of the noise: for values farther from the origin, the noise is neglected


class NoisyPoints(NamedTuple):
    """Quadrature nodes for noisy observations: sums over levels of coefficient_l E f_l(y_i + h_l e), e ~ N(0, I).

    Such a sum is sum_k quadrature_weight[i, k] f(node_index[i, k]), with f at the node's level. Nodes come in groups of
    the same size; all nodes of a group have the same level.
    """

    h: Float[np.ndarray, "groups 1"]
    y: Float[np.ndarray, "groups points d"]
    node_index: Int[np.ndarray, "n terms"]
    quadrature_weight: Float[np.ndarray, "n terms"]

    def total_weights(self) -> Float[np.ndarray, "groups points"]:
        """The weight of each node, summed over all observations."""
        shape = self.y.shape[:2]
        totals = np.bincount(self.node_index.ravel(), self.quadrature_weight.ravel(), minlength=shape[0] * shape[1])
        return totals.reshape(shape)


def noisy_points(noise_levels: Any, y: Float[np.ndarray, "n d"], *, rules: int = 1, seed: int = 0) -> NoisyPoints:
    """The quadrature nodes for observations y, with noise levels in the units of y.

    In one dimension the nodes are lattices that all observations share with their own weights, so the number of nodes
    hardly grows with n; the error is below 1e-3 for an f as narrow as the noise (a test). Otherwise each observation
    has the 2 d + 1 nodes of a random rule around it, at most nine, or the nodes of several `rules`; they are the same
    for the same n, d and seed.
    """
    h = check_noise_levels(noise_levels)
    if h[0] == 0:
        return NoisyPoints(h[:, None], y[None], np.arange(len(y))[:, None], np.ones((len(y), 1)))
    coefficients = level_coefficients(h)
    if y.shape[1] == 1:
        return _on_lattices(h, coefficients, y)
    parts = [_on_axes(h, coefficients / rules, y, np.random.default_rng([seed, rule])) for rule in range(rules)]
    return parts[0] if rules == 1 else _joined(parts)


def level_coefficients(h: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels"]:
    """The coefficient of each noise level: h^2 times the spacing of log h."""
    return h**2 * (np.gradient(np.log(h)) if len(h) > 1 else 1.0)


def check_noise_levels(noise_levels: Any) -> Float[np.ndarray, " levels"]:
    """`noise_levels` as an array: (0,), as in the paper, or increasing positive numbers; otherwise an `InputError`."""
    h = checks.vector(noise_levels, "noise_levels")
    if len(h) == 0 or (h < 0).any() or (np.diff(h) <= 0).any() or (len(h) > 1 and h[0] == 0):
        raise InputError(f"`noise_levels` must be (0,) or increasing positive noise levels; got {checks.shown(h)}.")
    if h[-1] > _WIDEST or 0 < h[0] < 1 / _WIDEST:
        raise InputError(
            f"`noise_levels` are in robust standard deviations and must lie between {1 / _WIDEST:g} and {_WIDEST:g}; "
            f"got {checks.shown(h)}."
        )
    return h


def _on_axes(h, coefficients, y, rng) -> NoisyPoints:
    """Nodes on randomly rotated axes for every observation, and at the observation itself; one group per level.

    For any radius R, the 2 d nodes +-R a_j, of weight 1 / (2 R^2), and the origin are a rule of degree three. If the
    axes are uniformly distributed and R has a chi distribution with d + 2 degrees of freedom, the rule is unbiased for
    every function (Genz and Monahan's spherical-radial rules). So the errors of the observations are independent and
    average out, while the errors of a fixed rule would add up. The radii are the quantiles of chi in random order,
    hence evenly spread.

    With more than four dimensions, only four axes are used, with weights d / 4 times as large. This is still unbiased
    and exact for odd functions, and costs half as much in eight dimensions, an eighth in thirty.
    """
    (n, d), a = y.shape, min(y.shape[1], _AXES)
    quantiles = chi.ppf((np.arange(n) + 0.5) / n, d + 2)
    radius = np.stack([rng.permutation(quantiles) for _ in h])[..., None]
    axes = radius[..., None] * orthonormal(rng.standard_normal((len(h), n, d, a)).swapaxes(2, 3))
    points = y[:, None] + h[:, None, None, None] * np.concatenate([axes, -axes, np.zeros((len(h), n, 1, d))], axis=2)
    on_axes = 0.5 * d / a / radius**2
    weight = np.concatenate([np.tile(on_axes, 2 * a), 1 - 2 * a * on_axes], axis=2) * coefficients[:, None, None]
    index = np.arange(weight.size).reshape(weight.shape)
    by_observation = (a.transpose(1, 0, 2).reshape(n, -1) for a in (index, weight))
    return NoisyPoints(h[:, None], points.reshape(len(h), -1, d), *by_observation)


def orthonormal(rows: Float[np.ndarray, "levels n a d"]) -> Float[np.ndarray, "levels n a d"]:
    """Gram-Schmidt orthonormalisation of the rows of many small matrices at once; faster than one call for each."""
    found: list[np.ndarray] = []
    for k in range(rows.shape[2]):
        row = rows[:, :, k].copy()
        for other in found:
            row -= (row * other).sum(axis=2, keepdims=True) * other
        found.append(row / np.sqrt((row**2).sum(axis=2, keepdims=True)))
    return np.stack(found, axis=2)


def _joined(parts: list[NoisyPoints]) -> NoisyPoints:
    """The points of several rules in the same groups, one per level."""
    size = parts[0].y.shape[1]
    level, within = np.divmod(np.stack([part.node_index for part in parts]), size)
    index = level * size * len(parts) + np.arange(len(parts))[:, None, None] * size + within
    return NoisyPoints(
        parts[0].h,
        np.concatenate([part.y for part in parts], axis=1),
        np.concatenate(index, axis=1),
        np.concatenate([part.quadrature_weight for part in parts], axis=1),
    )


def _on_lattices(h, coefficients, y) -> NoisyPoints:
    """The trapezoidal rule on one lattice per level, with only lattice points near observations; in rows of one level.

    Rows of points that share a level cost a fraction of points that each have their own level.
    """
    offsets = lattice_offsets()
    levels, rows, indices, weights, count = [], [], [], [], 0
    for level, coefficient in zip(h, coefficients, strict=True):
        step = lattice_step(level)
        places = np.where(np.abs(y) < _FAR * level, step * (np.rint(y / step) + offsets), y)
        points, index = np.unique(places, return_inverse=True)
        weight = np.exp(-0.5 * ((places - y) / level) ** 2)
        indices.append(index.reshape(places.shape) + count)
        weights.append(coefficient * weight / weight.sum(axis=1, keepdims=True))
        rows.append(in_rows(points))
        levels.append(np.full(len(rows[-1]), level))
        count += rows[-1].size
    missing = _round_up(sum(map(len, rows))) - sum(map(len, rows))
    at, level_of = np.concatenate(rows), np.concatenate(levels)
    at, level_of = np.pad(at, ((0, missing), (0, 0))), np.pad(level_of, (0, missing), mode="edge")
    return NoisyPoints(
        level_of[:, None], at[..., None], np.concatenate(indices, axis=1), np.concatenate(weights, axis=1)
    )


def in_rows(values: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, "rows points"]:
    """`values` in rows of the same length; the last row is padded with the last value."""
    return np.pad(values, (0, -len(values) % ROW), mode="edge").reshape(-1, ROW)


def lattice_offsets() -> Int[np.ndarray, " points"]:
    """The indices of the lattice points around an observation, relative to the nearest one."""
    return np.arange(-_STEPS * _REACH, _STEPS * _REACH + 1)


def lattice_step(level: Float[Any, ""] | float) -> Any:
    """The distance between lattice points at a noise level."""
    return level / _STEPS


def _round_up(count: int) -> int:
    """The next power of two, so that data sets with similar numbers of points share a compilation."""
    return 2 ** math.ceil(math.log2(max(count, 2)))
