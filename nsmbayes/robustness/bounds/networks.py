"""Bounds of tanh networks and of their derivatives over all inputs, from their weights."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

TANH_CURVATURE = 4 / (3 * math.sqrt(3))  # sup |tanh''| = sup 2 h (1 - h^2), at h^2 = 1/3

Layer = tuple[Float[np.ndarray, "out in"], Float[np.ndarray, " out"]]


class NetworkBounds(NamedTuple):
    """Bounds of the outputs f of a network over all inputs, and of their derivatives in the inputs z."""

    low: Float[np.ndarray, " out"]
    high: Float[np.ndarray, " out"]
    first: Float[np.ndarray, "out d"]
    """|df_i / dz_j|"""
    second: Float[np.ndarray, "out d d"]
    """|d^2 f_i / dz_j dz_k|"""


def interval(layers: Sequence[Layer], reach: float) -> tuple[Float[np.ndarray, " out"], Float[np.ndarray, " out"]]:
    """Range of the outputs of a tanh network with linear output and inputs in [-reach, reach].

    Intervals are propagated layer by layer; tanh is increasing, so it maps ends to ends.
    """
    width = layers[0][0].shape[1]
    low, high = np.full(width, -reach), np.full(width, reach)
    for i, (W, b) in enumerate(layers):
        if i:
            low, high = np.tanh(low), np.tanh(high)
        with np.errstate(invalid="ignore"):  # 0 x infinity counts as 0: a weight of zero passes nothing on
            parts = np.nan_to_num([W * low, W * high], nan=0.0, posinf=math.inf, neginf=-math.inf)
        low, high = parts.min(axis=0).sum(axis=1) + b, parts.max(axis=0).sum(axis=1) + b
        # slack for rounding errors, relative to the size of the summands
        slack = 1e-9 * (np.abs(parts).max(axis=0).sum(axis=1) + np.abs(b))
        low, high = low - slack, high + slack
    return low, high


def network_bounds(layers: Sequence[Layer], inputs: int) -> NetworkBounds:
    """Bounds over all inputs, for derivatives in the first `inputs` of them; consecutive layers are separated by tanh.

    With a = W h: |tanh(a)'| <= |a'| and |tanh(a)''| <= c |a'| |a'| + |a''|, c = sup |tanh''|.
    """
    low, high = interval(layers, math.inf)
    first = np.abs(layers[0][0][:, :inputs])
    second = np.zeros((*first.shape, inputs))
    for W, _ in layers[1:]:
        second = TANH_CURVATURE * first[:, :, None] * first[:, None, :] + second
        first, second = np.abs(W) @ first, np.tensordot(np.abs(W), second, 1)
    return NetworkBounds(low, high, first, second)
