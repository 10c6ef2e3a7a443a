"""Conversion of scalar distributions of torch and scipy to numpyro, without importing torch or sbi.

Only classes of these packages are converted, by name: a subclass may compute something else.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from nsmbayes._internal import checks
from nsmbayes.errors import InputError

# families with the same names and arguments in torch and numpyro
SHARED: dict[str, tuple[str, ...]] = {
    "Beta": ("concentration1", "concentration0"),
    "Cauchy": ("loc", "scale"),
    "Exponential": ("rate",),
    "Gamma": ("concentration", "rate"),
    "Gumbel": ("loc", "scale"),
    "HalfCauchy": ("scale",),
    "HalfNormal": ("scale",),
    "InverseGamma": ("concentration", "rate"),
    "Laplace": ("loc", "scale"),
    "LogNormal": ("loc", "scale"),
    "Normal": ("loc", "scale"),
    "StudentT": ("df", "loc", "scale"),
    "Uniform": ("low", "high"),
    "Weibull": ("scale", "concentration"),
}

# scipy's name: the numpyro family as a function of shapes, loc and scale; `False` if loc must be 0
_SCIPY: dict[str, tuple[Callable[..., dist.Distribution], bool]] = {
    "norm": (lambda loc, scale: dist.Normal(loc, scale), True),
    "uniform": (lambda loc, scale: dist.Uniform(loc, loc + scale), True),
    "cauchy": (lambda loc, scale: dist.Cauchy(loc, scale), True),
    "laplace": (lambda loc, scale: dist.Laplace(loc, scale), True),
    "logistic": (lambda loc, scale: dist.Logistic(loc, scale), True),
    "gumbel_r": (lambda loc, scale: dist.Gumbel(loc, scale), True),
    "t": (lambda df, loc, scale: dist.StudentT(df, loc, scale), True),
    "truncnorm": (lambda a, b, loc, scale: truncated_normal(loc, scale, loc + a * scale, loc + b * scale), True),
    "expon": (lambda _, scale: dist.Exponential(1 / scale), False),
    "gamma": (lambda a, _, scale: dist.Gamma(a, 1 / scale), False),
    "halfcauchy": (lambda _, scale: dist.HalfCauchy(scale), False),
    "halfnorm": (lambda _, scale: dist.HalfNormal(scale), False),
    "invgamma": (lambda a, _, scale: dist.InverseGamma(a, scale), False),
    "lognorm": (lambda s, _, scale: dist.LogNormal(jnp.log(scale), s), False),
    "weibull_min": (lambda c, _, scale: dist.Weibull(scale, c), False),
}


def truncated_normal(loc: Any, scale: Any, low: Any, high: Any) -> dist.Distribution:
    """A normal distribution truncated to the interval from `low` to `high`; both may be infinite."""
    bounds = {name: bound for name, bound in (("low", low), ("high", high)) if np.isfinite(np.asarray(bound)).all()}
    return dist.TruncatedNormal(loc, scale, **bounds) if bounds else dist.Normal(loc, scale)


def is_torch(value: Any) -> bool:
    """Whether this is a distribution of torch, or a distribution of sbi derived from one."""
    return any(base.__module__.startswith("torch.distributions") for base in type(value).__mro__)


def is_scipy(value: Any) -> bool:
    """Whether this is a frozen univariate distribution of scipy."""
    return hasattr(value, "dist") and hasattr(value, "args") and hasattr(value, "kwds")


def from_torch(value: Any) -> list[dist.Distribution]:
    """The scalar distributions of the entries, in order, of a torch distribution with independent entries."""
    kind = type(value).__name__
    if kind == "MultipleIndependent":
        return [part for each in value.dists for part in from_torch(each)]
    if kind in ("Independent", "BoxUniform"):
        return from_torch(value.base_dist)
    if kind not in SHARED or not type(value).__module__.startswith("torch.distributions"):
        raise InputError(
            f"`prior` has a {kind} of torch, which is not converted; known are {', '.join(SHARED)}, "
            "MultivariateNormal, and sbi's BoxUniform and MultipleIndependent. Write it as a numpyro distribution."
        )
    arguments = [checks.finite_array(getattr(value, name), "prior") for name in SHARED[kind]]
    return _each(getattr(dist, kind), *arguments)


def from_scipy(value: Any) -> list[dist.Distribution]:
    """The scalar distributions of a frozen distribution of scipy: one for each entry of its arguments."""
    name, shapes = value.dist.name, [one.strip() for one in (value.dist.shapes or "").split(",") if one.strip()]
    given = {"loc": 0.0, "scale": 1.0} | dict(zip([*shapes, "loc", "scale"], value.args, strict=False)) | value.kwds
    if name == "beta":
        found = _each(_beta, *(given[each] for each in (*shapes, "loc", "scale")))
    elif name in _SCIPY:
        build, moves = _SCIPY[name]
        if not moves and np.any(np.asarray(given["loc"]) != 0):
            raise InputError(f"`prior` has scipy's {name} with loc={given['loc']}: only loc=0 is converted.")
        found = _each(build, *(given[each] for each in (*shapes, "loc", "scale")))
    else:
        raise InputError(
            f"`prior` has scipy's {name}, which is not converted; known are {', '.join(sorted((*_SCIPY, 'beta')))}. "
            "Write it as a numpyro distribution instead."
        )
    return found


def as_scalar(value: Any, name: str) -> dist.Distribution:
    """`value` as a continuous scalar distribution of numpyro with valid arguments; `name` is for error messages."""
    found = [value]
    if is_torch(value):
        found = from_torch(value)
    elif is_scipy(value):
        found = from_scipy(value)
    one = found[0]
    if not isinstance(one, dist.Distribution):
        raise InputError(
            f"`{name}` must be a distribution of numpyro, torch or scipy, e.g. numpyro.distributions.Normal(0, 1); got "
            f"{type(value).__name__}."
        )
    if len(found) != 1 or one.batch_shape or one.event_shape:
        shape = (len(found),) if len(found) != 1 else one.batch_shape + one.event_shape
        raise InputError(f"`{name}` must be one number; its distribution has shape {shape}. Give each number a name.")
    if one.support is None or one.support.is_discrete:
        raise InputError(f"`{name}` must be continuous: a discrete parameter has no gradient for the sampler.")
    require_valid(one, name)
    return one


def require_valid(one: dist.Distribution, name: str) -> None:
    """Raise an error for invalid arguments, such as a negative scale, which numpyro accepts by default."""
    for argument, constraint in one.arg_constraints.items():
        given = getattr(one, argument, None)
        if given is None or isinstance(constraint, type(constraints.dependent)):
            continue
        given = np.asarray(given)
        if not (np.isfinite(given).all() and np.all(constraint(jnp.asarray(given)))):
            raise InputError(f"`{name}`: {type(one).__name__} does not take {argument}={given.tolist()}.")
    if isinstance(one, dist.Uniform) and not np.all(np.asarray(one.high) > np.asarray(one.low)):
        raise InputError(f"`{name}`: Uniform needs low < high; got low={one.low}, high={one.high}.")


def _beta(a: Any, b: Any, loc: Any, scale: Any) -> dist.Distribution:
    if loc == 0 and scale == 1:
        return dist.Beta(a, b)
    move = dist.transforms.AffineTransform(loc, scale, domain=constraints.unit_interval)
    return dist.TransformedDistribution(dist.Beta(a, b), move)


def _each(build: Callable[..., dist.Distribution], *arguments: Any) -> list[dist.Distribution]:
    """One scalar distribution per entry of the arguments."""
    columns = [np.asarray(a, dtype=np.float64) for a in arguments]
    try:
        columns = [np.atleast_1d(column) for column in np.broadcast_arrays(*columns)]
    except ValueError as error:
        raise InputError(f"`prior` has arguments of different lengths: {[c.shape for c in columns]}.") from error
    if columns[0].ndim != 1:
        raise InputError(
            f"`prior` must be a distribution over one vector; its arguments have shape {columns[0].shape}."
        )
    try:
        found = [build(*map(jnp.asarray, row)) for row in zip(*columns, strict=True)]
    except ValueError as error:
        raise InputError(f"`prior` has arguments that its family does not take ({error}).") from error
    for one in found:
        require_valid(one, "prior")
    return found
