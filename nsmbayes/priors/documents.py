"""Priors as JSON: for the command line, for campaigns and for saved methods, which store their prior."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.priors.convert import as_gaussian, as_prior
from nsmbayes.priors.gaussian import GaussianPrior
from nsmbayes.priors.independent import IndependentPrior
from nsmbayes.priors.scalars import require_valid
from nsmbayes.priors.unconstrained import unconstrained

FAMILIES = (
    "Beta", "Cauchy", "Exponential", "Gamma", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Laplace",
    "LogNormal", "Logistic", "Normal", "StudentT", "Uniform", "Weibull",
)  # fmt: skip
"""Names of the numpyro distributions that a prior in JSON can use."""
_GAUSSIAN, _TRUNCATED, _INDEPENDENT = "Gaussian", "TruncatedNormal", "Independent"
_BOUNDS = ("low", "high")


def prior_to_json(prior: Any) -> dict[str, Any] | None:
    """`prior` as a JSON object, or None if it is of a kind that has no JSON form.

    Example:
        >>> import nsmbayes as nsm
        >>> from nsmbayes.priors import prior_to_json
        >>> prior_to_json(nsm.GaussianPrior(mean=[0.0], covariance=[4.0]))
        {'distribution': 'Gaussian', 'mean': [0.0], 'covariance': [[4.0]]}
    """
    prior = as_prior(prior)
    if isinstance(prior, IndependentPrior):
        parts = {name: _family(part) for name, part in zip(prior.parameter_names, prior.parts, strict=True)}
        return None if None in parts.values() else {"distribution": _INDEPENDENT, "parameters": parts}
    if isinstance(prior, GaussianPrior | dist.MultivariateNormal):
        gaussian = as_gaussian(prior)
        return {"distribution": _GAUSSIAN, "mean": gaussian.mean.tolist(), "covariance": gaussian.covariance.tolist()}
    base = prior.base_dist if isinstance(prior, dist.Independent) else prior
    if isinstance(base, dist.ExpandedDistribution):
        base, shape = base.base_dist, base.batch_shape
    else:
        shape = base.batch_shape
    return _family(base, shape) if prior.event_shape == shape else None


def _family(base: Any, shape: tuple[int, ...] = ()) -> dict[str, Any] | None:
    """A distribution of a known family as a JSON object, with arguments of this shape; None for other families."""
    name = type(base).__name__
    if name in FAMILIES and type(base) is getattr(dist, name):
        arguments = {argument: getattr(base, argument) for argument in base.arg_constraints}
    elif name.endswith("TruncatedDistribution") and type(base.base_dist) is dist.Normal:
        name, bounds = _TRUNCATED, {bound: getattr(base, bound) for bound in _BOUNDS if hasattr(base, bound)}
        arguments = {"loc": base.base_dist.loc, "scale": base.base_dist.scale} | bounds
    else:
        return None
    return {"distribution": name} | {
        argument: np.broadcast_to(np.asarray(value, dtype=np.float64), shape).tolist()
        for argument, value in arguments.items()
    }


@double_precision
def prior_from_json(document: Any) -> tuple[Any, tuple[str, ...] | None]:
    """The prior described by a JSON object, and the names of its parameters, or None if it has no names.

    Example:
        >>> from nsmbayes.priors import prior_from_json
        >>> prior_from_json({"distribution": "Gaussian", "mean": [0], "covariance": [4], "names": ["a"]})
        (GaussianPrior(mean=[0.0], covariance=[[4.0]]), ('a',))
        >>> rate = {"distribution": "Uniform", "low": 0, "high": 5}
        >>> prior_from_json({"distribution": "Independent", "parameters": {"rate": rate}})
        (IndependentPrior(rate=Uniform(0, 5)), ('rate',))
    """
    options = dict(checks.instance(document, "prior", dict, 'a JSON object with a "distribution"'))
    names = options.pop("names", None)
    if options.get("distribution") == _INDEPENDENT:
        return _independent(options, names)
    name = _name(options, (_GAUSSIAN, _INDEPENDENT))
    if name == _GAUSSIAN:
        _require_arguments(name, options, ("mean", "covariance"))
        prior = GaussianPrior(**options)
    else:
        prior = _built(name, {key: checks.vector(value, key) for key, value in options.items()}).to_event(1)
    width = unconstrained(prior).dim
    if names is not None and (not isinstance(names, list) or len(names) != width):
        raise InputError(f"`prior`: `names` must be a list of {width} strings; got {names!r}.")
    return prior, None if names is None else tuple(names)


def _independent(options: Mapping[str, Any], names: Any) -> tuple[IndependentPrior, tuple[str, ...]]:
    if set(options) != {"distribution", "parameters"} or names is not None:
        raise InputError('`prior`: Independent has "parameters", an object of distributions by name, and nothing else.')
    parts = {}
    for parameter, one in checks.instance(options["parameters"], "parameters", dict, "a JSON object").items():
        part = dict(checks.instance(one, parameter, dict, 'a JSON object with a "distribution"'))
        name = _name(part)
        parts[parameter] = _built(name, {key: checks.real(value, key) for key, value in part.items()})
    prior = IndependentPrior(parts)
    return prior, prior.parameter_names


def _name(options: dict[str, Any], more: tuple[str, ...] = ()) -> str:
    return checks.choice(options.pop("distribution", None), "distribution", (*more, *FAMILIES, _TRUNCATED))


def _built(name: str, arguments: Mapping[str, Any]) -> dist.Distribution:
    """The numpyro distribution of the family `name` with these arguments."""
    given = {key: jnp.asarray(value) for key, value in arguments.items()}
    if name == _TRUNCATED:
        _require_arguments(name, set(given) - set(_BOUNDS), ("loc", "scale"))
    else:
        _require_arguments(name, given, tuple(getattr(dist, name).arg_constraints))
    try:
        found = getattr(dist, name)(**given)
    except ValueError as error:
        raise InputError(f"`prior`: {name} does not take these values ({error}).") from None
    require_valid(found, "prior")
    return found


def _require_arguments(name: str, given: Any, known: tuple[str, ...]) -> None:
    if set(given) != set(known):
        raise InputError(f"`prior`: {name} has {', '.join(map(repr, known))}; got {', '.join(map(repr, given))}.")


def read_prior(path: Path) -> tuple[Any, tuple[str, ...] | None]:
    """The prior described by a JSON file, and the names of its parameters, or None if it has no names."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"`prior` {path} cannot be read as JSON ({error}).") from None
    return prior_from_json(document)
