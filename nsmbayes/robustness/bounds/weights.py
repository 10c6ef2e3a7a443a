"""Bounds of weights: suprema over the distance r of powers of w times powers of a + b r."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.rounding import down, up, wider
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, SquaredExponential, Weight


class WeightBounds(NamedTuple):
    """Bounds of a radial weight w(r) with w(0) = 1, r the Mahalanobis distance."""

    radius: float
    """w = 1 up to this distance."""
    zeta: float
    """Beyond it w = (1 + t^2)^(-1/zeta), t = r - radius. 0 for a squared exponential, infinite for a constant."""
    lengthscale: float
    """Length-scale of the squared exponential."""

    @property
    def decay(self) -> float:
        """The power p with w ~ r^-p far away."""
        return math.inf if self.zeta == 0 else 2 / self.zeta

    def value(self, r: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """w(r), rounded up."""
        if self.zeta == 0:
            return wider(np.exp(-0.5 * np.minimum(r / self.lengthscale, 40) ** 2))
        if math.isinf(self.zeta):
            return np.ones_like(r)
        return wider((1 + np.maximum(r - self.radius, 0) ** 2) ** (-1 / self.zeta))

    def bounds_growth(self, exponent: float, degree: int) -> bool:
        """Whether w^exponent r^degree is bounded. Decided in exact arithmetic, because it is bounded at equality."""
        if degree == 0 or self.zeta == 0:
            return True
        if math.isinf(self.zeta):
            return False
        return 2 * Fraction(exponent) >= degree * Fraction(self.zeta)

    def sup(self, exponent: float, degree: int, a: float, b: float, *, beyond: float = 0.0) -> float:
        """sup over r >= `beyond` of w^exponent (a + b r)^degree, for a, b >= 0; infinite if it is unbounded."""
        if degree == 0 or b == 0:
            held = 1.0 if beyond <= self.radius else float(self.value(np.array(beyond))) ** exponent
            return up(held * a**degree) if degree else held
        if not self.bounds_growth(exponent, degree):
            return math.inf
        return up(self._sup_of_line(exponent / degree, a, b, beyond) ** degree)

    def _sup_of_line(self, exponent: float, a: float, b: float, beyond: float) -> float:
        """sup of w^exponent (a + b r), at the only zero of its derivative, beyond which the function decreases."""
        if self.zeta == 0:  # b r^2 + a r = b l^2 / exponent
            square = self.lengthscale**2 / exponent
            r = max(beyond, 2 * b * square / (a + math.sqrt(a**2 + 4 * b**2 * square)))
            return (a + b * r) * math.exp(-0.5 * min(r**2 / square, 1000))
        a += b * self.radius  # on the plateau, the line is largest at the edge
        power = 2 * exponent / self.zeta  # of (1 + t^2)^(-power / 2)
        if power <= 1:
            t = beyond - self.radius
            return (a + b * t) / math.sqrt(1 + t**2) if t * a > b else math.hypot(a, b)
        # b (power - 1) t^2 + power a t = b, solved without cancellation
        t = 2 * b / (power * a + math.sqrt((power * a) ** 2 + 4 * b**2 * (power - 1)))
        t = max(beyond - self.radius, t)
        return (a + b * t) * (1 + t**2) ** (-power / 2)

    @property
    def slope(self) -> tuple[float, float]:
        """c and e with |d w^2 / dr| <= c w^e."""
        if self.zeta == 0:
            return up(2 / self.lengthscale * math.exp(-0.5)), 1.0
        if math.isinf(self.zeta):
            return 0.0, 0.0
        # (4/zeta) t (1 + t^2)^(-2/zeta - 1) <= (4/zeta) (1 + t^2)^(-2/zeta - 1/2)
        return up(4 / self.zeta), down(2 + self.zeta / 2)

    @property
    def slope_over_weight(self) -> float:
        """sup of |d w^2 / dr| / w = 2 |dw/dr|."""
        if self.zeta == 0:
            return up(2 / self.lengthscale * math.exp(-0.5))
        if math.isinf(self.zeta):
            return 0.0
        p = 2 / self.zeta  # w = (1 + t^2)^(-p/2), steepest at t^2 = 1 / (p + 1)
        return up(2 * p * math.sqrt(1 / (p + 1)) * ((p + 2) / (p + 1)) ** (-p / 2 - 1))

    def slope_over_weight_beyond(self, distance: float) -> float:
        """A bound of |d w^2 / dr| / w at this distance and beyond: c w^(e - 1), with c and e of `slope`."""
        factor, exponent = self.slope
        if not factor or self.zeta == 0:
            return self.slope_over_weight
        return min(self.slope_over_weight, up(factor * float(self.value(np.array(distance))) ** (exponent - 1)))

    @property
    def steepest(self) -> float:
        """sup of |d w^2 / dr|."""
        if self.zeta == 0:
            return up(math.sqrt(2) / self.lengthscale * math.exp(-0.5))
        if math.isinf(self.zeta):
            return 0.0
        p = 2 / self.zeta  # w^2 = (1 + t^2)^-p, steepest at t^2 = 1 / (2 p + 1)
        return up(2 * p * math.sqrt(1 / (2 * p + 1)) * ((2 * p + 2) / (2 * p + 1)) ** (-p - 1))


WEIGHT_BOUNDS: dict[type[Weight], Callable[[Any], WeightBounds]] = {
    IMQ: lambda weight: WeightBounds(0.0, weight.zeta, 0.0),
    PlateauIMQ: lambda weight: WeightBounds(weight.radius, weight.zeta, 0.0),
    SquaredExponential: lambda weight: WeightBounds(0.0, 0.0, weight.lengthscale),
    Constant: lambda _: WeightBounds(0.0, math.inf, 0.0),
}
"""Functions from a weight to its bounds. Types are looked up exactly, since a subclass may behave differently."""


def weight_bounds(weight: Weight) -> WeightBounds | None:
    """The bounds of a weight; None if nothing is known about its type."""
    bounds = WEIGHT_BOUNDS.get(type(weight))
    return None if bounds is None else bounds(weight)
