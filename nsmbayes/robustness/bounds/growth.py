"""Growth of the derivatives of log q, and the resulting bounds of the loss for a weight."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.rounding import eigenvalue_range, up
from nsmbayes.robustness.bounds.weights import WeightBounds
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import Frame

Polynomial = Float[np.ndarray, " degree"]  # coefficients of 1, rho, rho^2, ...; none is negative


class Growth(NamedTuple):
    """Bounds that hold for all theta, as polynomials in rho = a + b |y - y0|, y0 the robust location."""

    a: float
    b: float
    score: Polynomial
    """of |s|"""
    laplacian_below: Polynomial
    """of -lap"""
    laplacian_above: Polynomial
    """of lap"""
    together: Polynomial
    """of |s|^2 + 2 lap"""
    constants: dict[str, float]
    """The constants in the bounds."""


class NotCovered(Exception):
    """No proposition covers this kind of surrogate; the message gives the reason.

    `smooth` says whether it is nevertheless known to be twice differentiable.
    """

    def __init__(self, why: str, *, smooth: bool = False):
        super().__init__(why)
        self.smooth = smooth


class Metric(NamedTuple):
    """The Mahalanobis distance of one noise level in the coordinates y: r^2 = (y - y0)' G^-1 (y - y0)."""

    level: float
    stretch: float
    """|y - y0| <= stretch r, the root of the largest eigenvalue of G"""
    steepness: float
    """|dr/dy| <= steepness, one over the root of the smallest eigenvalue of G"""


def metric(centre: LocationScatter, frame: Frame, level: float) -> Metric | None:
    """The metric at a level h, where G = L^-1 scatter L^-T + h^2 I; None if the scatter is singular or not finite."""
    inverse = np.linalg.inv(np.asarray(frame.basis))
    G = inverse @ np.asarray(centre.scatter) @ inverse.T
    G = (G + G.T) / 2 + level**2 * np.eye(len(G))
    if not np.isfinite(G).all():
        return None
    smallest, largest = eigenvalue_range(G)
    return Metric(level, up(math.sqrt(largest)), up(1 / math.sqrt(smallest))) if smallest > 0 else None


class LossBounds(NamedTuple):
    """-low <= loss of one point <= high at one noise level, for all theta and all x; f and g are those of A4."""

    low: float
    high: float
    f: float
    g: float

    @property
    def finite(self) -> bool:
        """Whether the weight bounds the growth everywhere."""
        return all(map(math.isfinite, self))


def loss_bounds(growth: Growth, weight: WeightBounds, at: Metric) -> LossBounds:
    """Bounds of w^2 (|s|^2 + 2 lap) + 2 (grad w^2)' s over all y.

    Above: |s|^2 + 2 lap and |s| by their growth. Below: w^2 |s|^2 + 2 (grad w^2)' s >= -|grad w^2|^2 / w^2, whatever s.
    """
    factor, exponent = weight.slope

    def sup(power: float, polynomial: Polynomial) -> float:
        terms = (c * weight.sup(power, k, growth.a, growth.b * at.stretch) for k, c in enumerate(polynomial) if c)
        return up(sum(terms))

    # the condition avoids zero times infinity: a constant weight has no gradient, and no bound either
    gradient = factor * at.steepness * sup(exponent, growth.score) if factor else 0.0
    below = sup(2, growth.laplacian_below)
    return LossBounds(
        low=up(2 * below + (weight.slope_over_weight * at.steepness) ** 2),
        high=up(sup(2, growth.together) + 2 * gradient),
        f=up(max(sup(1, growth.score), gradient)),
        g=up(max(below, sup(2, growth.laplacian_above))),
    )


def degree(polynomial: Polynomial) -> int:
    """The largest power with a coefficient that is not zero."""
    return int(np.flatnonzero(polynomial).max(initial=0))


def vanishes(growth: Growth, weight: WeightBounds) -> bool:
    """Whether the loss of a point tends to 0 as it moves away, so that a very distant point has no influence."""
    fastest = max(2 * degree(growth.score), degree(growth.together), degree(growth.laplacian_below))
    return 2 * weight.decay > fastest


def largest_zeta(growth: Growth) -> float:
    """The largest zeta of an inverse multiquadric that bounds this growth, rounded down as far as necessary."""
    fastest = max(2 * degree(growth.score), degree(growth.together), degree(growth.laplacian_above))
    if fastest == 0:
        return math.inf
    zeta = 4 / fastest
    while not WeightBounds(0.0, zeta, 0.0).bounds_growth(2, fastest):
        zeta = math.nextafter(zeta, 0)
    return zeta
