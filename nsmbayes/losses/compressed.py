"""Weights for a few observations whose weighted losses sum to the loss of all observations, near its minimum."""

import numpy as np
from jaxtyping import Float

_PRECISE = 0.02  # target error at the minimum of the loss, in nats
_RELATIVE = 0.003  # additional target error elsewhere, as a fraction of the height above the minimum
_SPREAD = 0.5  # prior standard deviation of a weight, relative to its start
_SMALLEST = 0.05  # smallest weight, relative to its start
_PASSES = 20


def matched_weights(
    each: Float[np.ndarray, "k m"], total: Float[np.ndarray, " k"], start: Float[np.ndarray, " m"], beta: float
) -> Float[np.ndarray, " m"]:
    """Weights near `start` with which the losses of m observations sum to `total`, up to a constant, at k thetas.

    They are the solution of a ridge regression (calibrated weights in survey sampling): the mean of w given
    beta (each @ w - total), centred over the thetas, if w has mean `start` and standard deviations proportional to it.
    The totals may have an error of 0.02 nats at their minimum, plus 0.3 % of their height above it elsewhere. Weights
    stay positive: a weight that would fall below a twentieth of its start is fixed there.

    Args:
        each: the loss of each observation of the subset at the thetas.
        total: the loss to be reproduced at the thetas.
        start: initial weights, positive.
        beta: the learning rate: beta times a loss is in nats.

    Example:
        >>> each = np.random.default_rng(0).standard_normal((20, 500))
        >>> total = 3 * each.sum(axis=1) + np.linspace(-5, 5, 20)
        >>> w = matched_weights(each, total, np.full(500, 3.0), 1.0)
        >>> bool(np.std(each @ w - total) < 0.05), bool(w.min() > 0)
        (True, True)
    """
    excess = beta * (total - total.min())
    scale = 1 / (_PRECISE + _RELATIVE * excess)  # one over the error allowed

    def centred(values: np.ndarray) -> np.ndarray:
        return (
            scale.reshape(-1, *[1] * (values.ndim - 1)) * beta * (values - np.average(values, axis=0, weights=scale**2))
        )

    spread = _SPREAD * start
    F, wanted = centred(each), centred(total)
    w, free = start.copy(), np.ones(len(start), bool)
    for _ in range(_PASSES):
        G = F[:, free] * spread[free]
        held = F @ np.where(free, start, _SMALLEST * start)
        w[free] = start[free] + spread[free] * (G.T @ np.linalg.solve(G @ G.T + np.eye(len(G)), wanted - held))
        low = free & (w < _SMALLEST * start)
        if not low.any():
            break
        free &= ~low
        w[low] = _SMALLEST * start[low]
    return np.maximum(w, _SMALLEST * start)
