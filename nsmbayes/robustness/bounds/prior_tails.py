"""Priors with a bounded density and sub-exponential tails, as required by assumption A4'.

The tails are those of theta in the user's space. They are known only for a list of families; others are not certified.
Independent coordinates with rates c_j give exp(-min c |theta|), since |theta| <= the sum of |theta_j|.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints, transforms

from nsmbayes.priors import Product

_WRAPPERS = (dist.Independent, dist.ExpandedDistribution)
_TRUNCATED = ("LeftTruncatedDistribution", "RightTruncatedDistribution")


class Tails(NamedTuple):
    """Properties of the tails of a prior."""

    light: bool
    """Bounded density, and tails at most C exp(-c |theta|)."""
    rate: float
    """Every c > 0 below this rate is valid: infinite for a Gaussian or a bounded support, 0 if not light."""
    why: str


def _smallest(value: Any) -> float:
    return float(np.min(np.asarray(value)))


# family: (rate of the tail, smallest shape parameter, which must be at least `bounded from` for a bounded density)
_LIGHT: dict[type, tuple[Callable[[Any], float], Callable[[Any], float] | None, float]] = {
    dist.Normal: (lambda _: math.inf, None, 0.0),
    dist.MultivariateNormal: (lambda _: math.inf, None, 0.0),
    dist.LowRankMultivariateNormal: (lambda _: math.inf, None, 0.0),
    dist.HalfNormal: (lambda _: math.inf, None, 0.0),
    dist.Uniform: (lambda _: math.inf, None, 0.0),
    dist.Beta: (lambda _: math.inf, lambda d: min(_smallest(d.concentration0), _smallest(d.concentration1)), 1.0),
    dist.Dirichlet: (lambda _: math.inf, lambda d: _smallest(d.concentration), 1.0),
    dist.Laplace: (lambda d: 1 / float(np.max(d.scale)), None, 0.0),
    dist.Logistic: (lambda d: 1 / float(np.max(d.scale)), None, 0.0),
    dist.Gumbel: (lambda d: 1 / float(np.max(d.scale)), None, 0.0),
    dist.Exponential: (lambda d: _smallest(d.rate), None, 0.0),
    dist.Gamma: (lambda d: _smallest(d.rate), lambda d: _smallest(d.concentration), 1.0),
    dist.Chi2: (lambda _: 0.5, lambda d: _smallest(d.df), 2.0),
}
_HEAVY: tuple[type, ...] = (
    dist.Cauchy,
    dist.HalfCauchy,
    dist.StudentT,
    dist.MultivariateStudentT,
    dist.LogNormal,
    dist.Pareto,
    dist.InverseGamma,
)


def tails(prior: Any) -> Tails:
    """Look up the tails of a numpyro distribution.

    Example:
        >>> import numpyro.distributions as dist
        >>> from nsmbayes.robustness.bounds.prior_tails import tails
        >>> tails(dist.Laplace(0.0, 2.0).expand([3]).to_event(1)).rate
        0.5
        >>> tails(dist.Cauchy(0.0, 1.0).expand([3]).to_event(1)).light
        False
    """
    base: Any = prior
    while isinstance(base, _WRAPPERS):
        base = base.base_dist
    if isinstance(base, Product):
        of_parts = [tails(part) for part in base.parts]
        heavy = [one for one in of_parts if not one.light]
        why = "each parameter has a bounded density and sub-exponential tails"
        return heavy[0] if heavy else Tails(True, min(one.rate for one in of_parts), why)
    kind: Any = type(base)
    name = kind.__name__
    if kind in _LIGHT:
        rate, shape, bounded_from = _LIGHT[kind]
        if shape is not None and not shape(base) >= bounded_from:
            return Tails(False, 0.0, f"the density of a {name} prior with so small a shape parameter is unbounded")
        return Tails(True, rate(base), f"a {name} prior has a bounded density and sub-exponential tails")
    if kind in _HEAVY:
        return Tails(False, 0.0, f"a {name} prior has tails heavier than any exponential")
    if name == "TwoSidedTruncatedDistribution":
        return Tails(True, math.inf, "a prior truncated on both sides has a bounded support and density")
    if name in _TRUNCATED:
        return tails(base.base_dist)
    if kind is dist.TransformedDistribution and all(type(t) is transforms.AffineTransform for t in base.transforms):
        of_base = tails(base.base_dist)
        scale = math.prod(float(np.max(np.abs(t.scale))) for t in base.transforms)
        return of_base._replace(rate=of_base.rate / scale if math.isfinite(scale) and scale > 0 else 0.0)
    if isinstance(getattr(prior, "support", None), constraints.Constraint):
        return Tails(False, 0.0, f"the tails of a {name} prior are not known here")
    return Tails(False, 0.0, f"{name} is not a distribution that is known here")
