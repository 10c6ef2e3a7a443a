"""Noise levels: the score-matching loss is summed over the data and the model smoothed by noise of several sizes.

With p_h = p * N(0, h^2 I), de Bruijn's identity says KL(p || q) = integral over log h of h^2 FD(p_h || q_h), where FD
is the Fisher divergence that score matching estimates. So the loss summed over log-spaced levels with coefficients
h^2 (spacing of log h) estimates the log likelihood: low levels give precision, high levels keep the loss from being
flat far from its minimum, and no level rewards a spike on a data point. The single level 0 is the paper's loss.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError

DEFAULT_LEVELS = tuple(0.1 * 2.0**i for i in range(7))


class NoiseRule(NamedTuple):
    """Levels h with the coefficient of each, and nodes e with the weight of each for the expectation over noise."""

    h: Float[np.ndarray, " levels"]
    coefficients: Float[np.ndarray, " levels"]
    nodes: Float[np.ndarray, "nodes d"]
    node_weights: Float[np.ndarray, " nodes"]


def noise_rule(levels: Any, d: int) -> NoiseRule:
    """The rule for noise levels in units of the robust scale of the data, in d dimensions."""
    h = check_levels(levels)
    if len(h) == 1 and h[0] == 0:
        return NoiseRule(h, np.ones(1), np.zeros((1, d)), np.ones(1))
    spacing = np.gradient(np.log(h)) if len(h) > 1 else np.ones(1)
    nodes, weights = _gauss_hermite(7) if d == 1 else _degree_five(d)
    return NoiseRule(h, h**2 * spacing, nodes, weights)


def check_levels(levels: Any) -> Float[np.ndarray, " levels"]:
    """`levels` as (0,), the paper's, or as increasing positive numbers."""
    h = _checks.vector(levels, "levels")
    if len(h) == 0 or (h < 0).any() or (np.diff(h) <= 0).any() or (len(h) > 1 and h[0] == 0):
        raise InputError(f"`levels` must be (0,) or increasing positive noise levels; got {tuple(h.tolist())}.")
    return h


def _gauss_hermite(k: int) -> tuple[Float[np.ndarray, "nodes 1"], Float[np.ndarray, " nodes"]]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(k)
    return nodes[:, None], weights / weights.sum()


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
