"""Sharper bounds for one-dimensional observations: the line is divided into cells with separate bounds.

In a cell, a function is at most its value in the middle plus half the width times a bound of its derivative, and the
weight is at most that at the end nearer to the bulk. Beyond the last cell, global bounds are multiplied by the weight.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.family import FamilyBounds, through
from nsmbayes.robustness.bounds.growth import Metric
from nsmbayes.robustness.bounds.rounding import up
from nsmbayes.robustness.bounds.weights import WeightBounds
from nsmbayes.surrogates import ExponentialFamily, TanhNetwork

_TANH_THIRD = 2.0  # sup |tanh'''|, at 0
# Distances at which cells end: evenly spaced over the bulk, then geometrically spaced.
_ENDS = np.concatenate([np.linspace(0, 10, 1001), np.geomspace(10, 1e5, 301)[1:]])


class Pull(NamedTuple):
    """Upper bounds of the effect of one observation on the posterior's precision and mean, for a given theta."""

    precision: float
    """sup of w^2 |dT|^2"""
    mean: float
    """sup of |w^2 (dT s + lap T) + dT grad w^2|, s the score at theta"""


def pull_anywhere(bounds: FamilyBounds, weight: WeightBounds, at: Metric, distance: float = 0.0) -> Pull:
    """Bounds for any dimension, for observations at least `distance` from the bulk."""
    w = float(weight.value(np.array(distance)))
    factor, exponent = weight.slope
    gradient = min(weight.steepest, factor * w**exponent) * at.steepness
    mean = w**2 * (bounds.T.first * bounds.score + bounds.T.laplacian) + bounds.T.first * gradient
    return Pull(up(w**2 * bounds.T.first**2), up(mean))


def pull_on_the_line(
    family: ExponentialFamily,
    location: float,
    basis: float,
    theta: Float[np.ndarray, " d_theta"],
    change: Float[np.ndarray, "d_theta d_theta"],
    bounds: FamilyBounds,
    weight: WeightBounds,
    at: Metric,
) -> Pull:
    """Sharper bounds for one-dimensional x with an affine standardiser; `change` @ T replaces T, as in `bounds`."""
    ends = np.concatenate([-_ENDS[::-1], _ENDS[1:]])
    middle, half = (ends[1:] + ends[:-1]) / 2 * at.stretch, np.diff(ends) / 2 * at.stretch
    centre, scale = (float(np.asarray(a)[0]) for a in (family.scale_x.centre, family.scale_x.scale))
    z, D = (location - centre + basis * middle) / scale, basis / scale
    V = np.asarray(family.T.V) / np.asarray(family.scale_theta.scale)[:, None]
    of_T, of_b = _hidden(family.T, z, D), _hidden(family.b, z, D)
    at_theta = (theta - np.asarray(family.scale_theta.centre)) @ V
    dT, lap_T = (np.linalg.norm(change @ V @ part, axis=0) for part in of_T)
    score = np.abs(at_theta @ of_T[0] + np.asarray(family.b.V)[0] @ of_b[0])
    J = np.abs(np.asarray(family.T.W)[:, 0] * D)
    dT += half * bounds.T.second
    lap_T += half * through(change @ V, _TANH_THIRD * J**3)
    score += half * bounds.score_slope
    w = weight.value(np.minimum(np.abs(ends[1:]), np.abs(ends[:-1])))
    factor, exponent = weight.slope
    gradient = np.minimum(weight.steepest, factor * w**exponent) * at.steepness
    beyond = pull_anywhere(bounds, weight, at, float(_ENDS[-1]))
    return Pull(
        precision=up(max(float((w**2 * dT**2).max()), beyond.precision)),
        mean=up(max(float((w**2 * (dT * score + lap_T) + dT * gradient).max()), beyond.mean)),
    )


def _hidden(
    net: TanhNetwork, z: Float[np.ndarray, " cells"], D: float
) -> tuple[Float[np.ndarray, "hidden cells"], Float[np.ndarray, "hidden cells"]]:
    """First and second derivatives of tanh(W z + c) in y. In NumPy: compilation would take longer than all the rest."""
    W, c = np.asarray(net.W), np.asarray(net.c)
    h = np.tanh(W * z + c[:, None])
    slope = (1 - h**2) * (W * D)
    return slope, -2 * h * slope * (W * D)
