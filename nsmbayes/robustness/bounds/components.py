"""Bounds of the loss of a point at given parameters, from the components that the mixture has there.

For all y, whatever the number of columns. With responsibilities r_k, component scores s_k = -P_k (y - m_k) and Q an
upper bound of sum_k r_k |s_k|^2, the score has |s|^2 <= Q and the Laplacian lies between -T and Q, T the largest trace of
a precision. Q is the smaller of two bounds. The first takes the worst component. The second knows that a component
counts only where it is dense: with densities e^(g_k) of the components and K of them, sum_k r_k g_k is log q less the
entropy of the r_k, so at least g_j - log K for every j. As g_k = a_k - |s_k|^2_(S_k) / 2, this is

    sum_k r_k (y - m_k)' P_k (y - m_k) <= (y - m_j)' P_j (y - m_j) + 2 (log K + max_k a_k - a_j):

a narrow component, far away, does not matter, since the wide one j has all the density there.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes.robustness.bounds.growth import Metric
from nsmbayes.robustness.bounds.rounding import down, up, wider
from nsmbayes.robustness.bounds.weights import WeightBounds
from nsmbayes.surrogates import Frame, MixtureDensity
from nsmbayes.surrogates.mixture import GaussianMixture

_EIGENVALUE_ERROR = 1e-12  # relative to the largest of a matrix


class Components(NamedTuple):
    """The components of the mixtures at t parameters, in the coordinates of a frame, before noise is added."""

    log_weights: Float[np.ndarray, "t k"]
    distances: Float[np.ndarray, "t k"]
    """Of the means from the robust location, at most."""
    variances: Float[np.ndarray, "t k d"]
    """Eigenvalues of the covariances, increasing, at least."""

    @classmethod
    def of(
        cls,
        surrogate: MixtureDensity,
        frame: Frame,
        origin: Float[np.ndarray, " d_x"],
        theta: Float[np.ndarray, "t d_theta"],
    ) -> "Components":
        """Those of a surrogate at `theta`, with `origin` as the robust location."""
        log_weights, means, covariances = map_rows(_in_frame, theta, surrogate, frame)
        centre = np.linalg.solve(np.asarray(frame.basis), origin - np.asarray(frame.offset))
        variances = np.linalg.eigvalsh((covariances + np.swapaxes(covariances, -1, -2)) / 2)
        variances = np.maximum(variances - _EIGENVALUE_ERROR * variances[..., -1:], 0)
        return cls(log_weights, wider(np.linalg.norm(means - centre, axis=-1)), variances)

    def at_level(self, level: float, metric: Metric, weight: WeightBounds, beyond: float) -> "PointBounds":
        """Bounds at a noise level, for points whose distance by `metric` is at least `beyond`."""
        variances = self.variances + down(level**2)
        with np.errstate(divide="ignore"):  # without noise a precision may overflow: then nothing is bounded
            P = wider(1 / variances)
            largest, traces = P[..., 0], P.sum(axis=-1)
            logs = self.log_weights - 0.5 * np.log(variances).sum(axis=-1)
        M = float(self.distances.max())
        # sup of w^2 (M + |y - y0|)^2, and of w^2
        square = weight.sup(2, 2, M, metric.stretch, beyond=beyond)
        held = weight.sup(2, 0, 0.0, 0.0, beyond=beyond)
        worst = largest.max(axis=1)
        by_worst = worst**2 * square
        behind = np.log(logs.shape[1]) + logs.max(axis=1, keepdims=True) - logs
        by_density = worst * (largest * square + 2 * wider(behind) * held).min(axis=1)
        gradient = weight.slope_over_weight_beyond(beyond) * metric.steepness
        return PointBounds(
            wider(np.minimum(by_worst, by_density)), wider(traces.max(axis=1) * held), up(gradient**2)
        )


class PointBounds(NamedTuple):
    """Bounds over all points y, at one noise level, for t parameters."""

    square: Float[np.ndarray, " t"]
    """of w^2 Q, see above"""
    trace: Float[np.ndarray, " t"]
    """of w^2 T"""
    gradient: float
    """of |grad w^2|^2 / w^2"""


class LossRange(NamedTuple):
    """-low <= loss of a point <= high, for all points and each of t parameters."""

    low: Float[np.ndarray, " t"]
    high: Float[np.ndarray, " t"]


def mixture_range(bounds: PointBounds) -> LossRange:
    """The loss w^2 (|s|^2 + 2 lap) + 2 (grad w^2)' s of the mixture itself.

    lap = sum_k r_k (|s_k|^2 - tr P_k) - |s|^2. So it is at most 2 w^2 Q - w^2 |s|^2 + 2 (grad w^2)' s, and at least
    w^2 |s|^2 + 2 (grad w^2)' s - 2 w^2 T; and +-2 (grad w^2)' s <= w^2 |s|^2 + |grad w^2|^2 / w^2.
    """
    square, trace, gradient = bounds
    return LossRange(wider(2 * trace + gradient), wider(2 * square + gradient))


def combination_range(references: PointBounds, c: Float[np.ndarray, "t k"]) -> LossRange:
    """The loss of the scores sum_k c_k s_k, where `references` bound those of the k references.

    |s|^2 <= (sum_k |c_k| |s_k|)^2 <= (sum_k |c_k| sqrt(Q_k))^2, and lap is a sum of c_k times numbers in [-T_k, Q_k].
    """
    square, trace, gradient = references
    plus, minus = np.maximum(c, 0), np.maximum(-c, 0)
    size = (np.abs(c) @ np.sqrt(square)) ** 2
    low = 2 * (plus @ trace + minus @ square) + gradient
    return LossRange(wider(low), wider(2 * size + 2 * (plus @ square + minus @ trace) + gradient))


def _in_frame(theta: Float[Array, " d_theta"], surrogate: MixtureDensity, frame: Frame) -> GaussianMixture:
    return surrogate.in_frame(theta, frame)
