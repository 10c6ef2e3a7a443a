"""Bounds of the loss of a point at given parameters, from the components of the mixture at these parameters.

The bounds hold for all y and any number of columns. With responsibilities r_k, component scores s_k = -P_k (y - m_k)
and Q an upper bound of sum_k r_k |s_k|^2, the score has |s|^2 <= Q and the Laplacian lies between -T and Q, T the
largest trace of a precision.

The difficulty is Q: narrow components that are far away must not dominate it. Write e^(g_k) for the densities of the
components with their weights, q_k = (y - m_k)' P_k (y - m_k), so that g_k = a_k - q_k / 2, and G for a lower bound of
the log density: that of the best component at the distance of y, for any direction. |s_k|^2 <= |P_k| q_k, and

- r_k <= e^(g_k - G), hence r_k q_k <= 2 psi(a_k - G), psi(t) = max over v >= 0 of v min(1, e^(t - v));
- for any set J of components sum_J r_k q_k = 2 sum_J r_k (a_k - log q - log r_k) <= 2 max(0, max_J a_k - G) + 2 log K.

The second bound is used for components with a precision up to a threshold, the first for the others; at every distance,
the best threshold is chosen.
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
# Outer distances of rings: evenly spaced over the bulk, then geometrically spaced.
_ENDS = np.concatenate([np.linspace(0, 12, 61)[1:], np.geomspace(12, 1e4, 31)[1:]])


class Components(NamedTuple):
    """The components of the mixtures at t parameters, in the coordinates of a frame, without noise."""

    log_weights: Float[np.ndarray, "t k"]
    distances: Float[np.ndarray, "t k"]
    """Upper bounds of the distances of the means from the robust location."""
    variances: Float[np.ndarray, "t k d"]
    """Lower bounds of the eigenvalues of the covariances, increasing."""

    @classmethod
    def of(
        cls,
        surrogate: MixtureDensity,
        frame: Frame,
        origin: Float[np.ndarray, " d_x"],
        theta: Float[np.ndarray, "t d_theta"],
    ) -> "Components":
        """Compute the components of a surrogate at `theta`, with `origin` as the robust location."""
        log_weights, means, covariances = map_rows(_in_frame, theta, surrogate, frame)
        centre = np.linalg.solve(np.asarray(frame.basis), origin - np.asarray(frame.offset))
        variances = np.linalg.eigvalsh((covariances + np.swapaxes(covariances, -1, -2)) / 2)
        variances = np.maximum(variances - _EIGENVALUE_ERROR * variances[..., -1:], 0)
        return cls(log_weights, wider(np.linalg.norm(means - centre, axis=-1)), variances)

    def at_level(self, metric: Metric, weight: WeightBounds, beyond: float = 0.0) -> "PointBounds":
        """Bounds at a noise level, for points with a distance of at least `beyond` in its metric."""
        variances = self.variances + down(metric.level**2)
        P = wider(1 / variances)
        largest, traces, a = P[..., 0], P.sum(axis=-1), self.log_weights - 0.5 * np.log(variances).sum(axis=-1)
        ends = np.append(beyond, _ENDS[beyond < _ENDS])
        square, held, order = np.empty((len(a), len(ends))), weight.value(ends[:-1]) ** 2, np.argsort(largest, axis=1)
        distances, P_1, a = (np.take_along_axis(each, order, axis=1) for each in (self.distances, largest, a))
        for ring, r in enumerate(ends[1:]):
            G = (a - 0.5 * P_1 * (distances + metric.stretch * r) ** 2).max(axis=1)
            square[:, ring] = held[ring] * _best(P_1, a - G[:, None])
        far = weight.sup(2, 2, float(self.distances.max()), metric.stretch, beyond=float(ends[-1]))
        square[:, -1] = largest.max(axis=1) ** 2 * far
        gradient = weight.slope_over_weight_beyond(beyond) * metric.steepness
        trace = traces.max(axis=1) * weight.sup(2, 0, 0.0, 0.0, beyond=beyond)
        return PointBounds(wider(square), wider(trace), up(gradient**2))


def _best(precisions: Float[np.ndarray, "t k"], above: Float[np.ndarray, "t k"]) -> Float[np.ndarray, " t"]:
    """The best bound of sum_k r_k |P_k| q_k, given |P_k|, increasing, and a_k - G."""
    alone = 2 * precisions * np.where(above > 1, above, np.exp(np.minimum(above, 1) - 1))
    rest = np.cumsum(alone[:, ::-1], axis=1)[:, ::-1]  # sum of the first bound over each component and those above it
    highest = np.maximum(np.maximum.accumulate(above, axis=1), 0)
    together = precisions * 2 * (highest + np.log(precisions.shape[1]))
    together[:, :-1] += rest[:, 1:]
    return np.minimum(rest[:, 0], together.min(axis=1))


class PointBounds(NamedTuple):
    """Bounds over all points y, at one noise level, for t parameters."""

    square: Float[np.ndarray, "t rings"]
    """of w^2 Q, see above, for points in each of several rings around the location"""
    trace: Float[np.ndarray, " t"]
    """of w^2 T"""
    gradient: float
    """of |grad w^2|^2 / w^2"""


class LossRange(NamedTuple):
    """-low <= loss of a point <= high, for all points and each of t parameters."""

    low: Float[np.ndarray, " t"]
    high: Float[np.ndarray, " t"]


def mixture_range(bounds: PointBounds) -> LossRange:
    """Range of the loss w^2 (|s|^2 + 2 lap) + 2 (grad w^2)' s of the mixture itself.

    lap = sum_k r_k (|s_k|^2 - tr P_k) - |s|^2. So it is at most 2 w^2 Q - w^2 |s|^2 + 2 (grad w^2)' s, and at least
    w^2 |s|^2 + 2 (grad w^2)' s - 2 w^2 T; and +-2 (grad w^2)' s <= w^2 |s|^2 + |grad w^2|^2 / w^2.
    """
    square, trace, gradient = bounds
    return LossRange(wider(2 * trace + gradient), wider(2 * square.max(axis=1) + gradient))


def combination_range(references: PointBounds, c: Float[np.ndarray, "t k"]) -> LossRange:
    """Range of the loss for the scores sum_k c_k s_k, where `references` are the bounds of the k references.

    |s|^2 <= (sum_k |c_k| |s_k|)^2 <= (sum_k |c_k| sqrt(Q_k))^2, and lap is a sum of c_k times numbers in [-T_k, Q_k].
    """
    square, trace, gradient = references
    plus, minus = np.maximum(c, 0), np.maximum(-c, 0)
    low = 2 * ((minus @ square).max(axis=1) + plus @ trace)
    high = 2 * ((np.abs(c) @ np.sqrt(square)) ** 2 + plus @ square).max(axis=1) + 2 * minus @ trace
    return LossRange(wider(low + gradient), wider(high + gradient))


def _in_frame(theta: Float[Array, " d_theta"], surrogate: MixtureDensity, frame: Frame) -> GaussianMixture:
    return surrogate.in_frame(theta, frame)
