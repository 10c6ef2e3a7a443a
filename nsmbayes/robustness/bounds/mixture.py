"""Mixture density networks: Proposition 2 with explicit constants, at any noise level."""

import math

import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.growth import Growth
from nsmbayes.robustness.bounds.networks import Layer, interval
from nsmbayes.robustness.bounds.rounding import down, norm, up
from nsmbayes.surrogates import Frame, MixtureDensityNetwork
from nsmbayes.surrogates.mdn import MixtureEnsemble
from nsmbayes.surrogates.scaling import SQUASHED


def mixture_growth(
    network: MixtureDensityNetwork, frame: Frame, origin: Float[np.ndarray, " d_x"], level: float
) -> Growth:
    """Growth of the score and Laplacian of the smoothed mixture in the coordinates y, around y0 of x = `origin`.

    Components have scores s_k = -P_k (y - m_k) with |P_k| <= 1/lambda and |m_k - y0| <= M for every theta, since the
    network's input is a squashed theta. With responsibilities r_k, s = sum r_k s_k and
    |s|^2 + 2 lap = 2 sum r_k |s_k|^2 - |s|^2 - 2 sum r_k tr P_k <= 2 (|y - y0| + M)^2 / lambda^2.
    """
    d, scale = len(network.scale_x.scale), np.asarray(network.scale_x.scale)
    D = np.asarray(frame.basis) / scale[:, None]
    low, largest = network.eigenvalue_bounds
    smallest = down(low / norm(D) ** 2 + level**2)
    inverse = np.linalg.inv(D)
    at = (origin - np.asarray(network.scale_x.centre)) / scale
    reach = max(_reach(layers, network, at, inverse) for layers in _members(network))
    return Growth(
        a=reach,
        b=1.0,
        score=np.array([0, 1 / smallest]),
        laplacian_below=np.array([d / smallest]),
        laplacian_above=np.array([0, 0, 1 / smallest**2]),
        together=np.array([0, 0, 2 / smallest**2]),
        constants={
            "lambda_min": smallest,
            "lambda_max": up(largest * norm(inverse) ** 2 + level**2),
            "mean_reach": reach,
        },
    )


def _members(network: MixtureDensityNetwork) -> list[list[Layer]]:
    layers = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.layers]
    if not isinstance(network, MixtureEnsemble):
        return [layers]
    return [[(W[i], b[i]) for W, b in layers] for i in range(len(layers[0][0]))]


def _reach(
    layers: list[Layer], network: MixtureDensityNetwork, at: Float[np.ndarray, " d"], inverse: Float[np.ndarray, "d d"]
) -> float:
    """The largest distance of a component's mean from the origin, over all theta and all components."""
    K = network.components
    low, high = (ends[K : K + K * len(at)].reshape(K, -1) for ends in interval(layers, SQUASHED))
    middle, half = (low + high) / 2, (high - low) / 2
    if network.trend is not None:
        trend = network.trend
        intercept, slope, L = (np.asarray(a) for a in (trend.intercept, trend.slope, trend.factor))
        middle, half = intercept + middle @ L.T, half @ np.abs(L).T + float(trend.bound) * np.abs(slope).sum(axis=1)
    around = np.abs((middle - at) @ inverse.T) + half @ np.abs(inverse).T
    return up(math.sqrt((around**2).sum(axis=1).max()))
