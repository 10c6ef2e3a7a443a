"""Weights with which the losses of a few observations add up to the loss of all, where it matters."""

import numpy as np
from jaxtyping import Float

_PRECISE = 0.02  # nats to which the loss is to be reproduced at its minimum
_RELATIVE = 0.003  # and more, as a fraction of what it lies above its minimum
_SPREAD = 0.5  # how far weights may be expected to move, relative to where they start
_SMALLEST = 0.05  # of a weight, relative to where it started
_PASSES = 20


def matched_weights(
    each: Float[np.ndarray, "k m"], total: Float[np.ndarray, " k"], start: Float[np.ndarray, " m"], beta: float
) -> Float[np.ndarray, " m"]:
    """Weights near `start` with which the losses of m observations add up to `total`, up to a constant, at k thetas.

    They are a ridge regression's (in survey sampling, calibrated weights): the mean of w given beta (each @ w - total),
    centred over the thetas, if w has mean `start` and standard deviations in proportion to it. The totals may be off
    by 0.02 nats where they are smallest, and by 0.3 % of what they are larger elsewhere. Weights stay positive;
    those that would not are held at a twentieth of where they started.

    Args:
        each: the loss of each observation of the subset at the thetas.
        total: the loss to be reproduced there.
        start: weights to begin with, positive.
        beta: the learning rate: beta times a loss is in nats.

    Example:
        >>> each = np.random.default_rng(0).standard_normal((20, 500))
        >>> total = 3 * each.sum(axis=1) + np.linspace(-5, 5, 20)
        >>> w = matched_weights(each, total, np.full(500, 3.0), 1.0)
        >>> bool(np.std(each @ w - total) < 0.05), bool(w.min() > 0)
        (True, True)
    """
    excess = beta * (total - total.min())
    scale = 1 / (_PRECISE + _RELATIVE * excess)  # one over what the total may be off

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
