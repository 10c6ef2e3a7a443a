"""Priors as JSON: for the command line, and for campaigns, which keep theirs."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.priors import GaussianPrior, unconstrained

FAMILIES = (
    "Beta", "Cauchy", "Exponential", "Gamma", "HalfCauchy", "HalfNormal", "InverseGamma", "Laplace", "LogNormal",
    "Logistic", "Normal", "StudentT", "Uniform", "Weibull",
)  # fmt: skip
"""Distributions of numpyro whose independent draws a prior in JSON can have."""
_GAUSSIAN = "Gaussian"


def prior_to_json(prior: Any) -> dict[str, Any] | None:
    """`prior` as a JSON object, or None if it is of a kind that has none.

    Example:
        >>> import nsmbayes as nsm
        >>> from nsmbayes.simulators.campaigns.prior_json import prior_to_json
        >>> prior_to_json(nsm.GaussianPrior(mean=[0.0], covariance=[4.0]))
        {'distribution': 'Gaussian', 'mean': [0.0], 'covariance': [[4.0]]}
    """
    if isinstance(prior, GaussianPrior):
        return {"distribution": _GAUSSIAN, "mean": prior.mean.tolist(), "covariance": prior.covariance.tolist()}
    base = prior.base_dist if isinstance(prior, dist.Independent) else prior
    name = type(base).__name__
    if name not in FAMILIES or type(base) is not getattr(dist, name) or prior.event_shape != base.batch_shape:
        return None
    shape = base.batch_shape
    return {"distribution": name} | {
        argument: np.broadcast_to(np.asarray(getattr(base, argument), dtype=np.float64), shape).tolist()
        for argument in base.arg_constraints
    }


@double_precision
def prior_from_json(document: Any) -> tuple[Any, tuple[str, ...] | None]:
    """The prior of a JSON object, and the names of its parameters if it has some.

    Example:
        >>> from nsmbayes.simulators.campaigns.prior_json import prior_from_json
        >>> prior_from_json({"distribution": "Gaussian", "mean": [0], "covariance": [4], "names": ["a"]})
        (GaussianPrior(mean=[0.0], covariance=[[4.0]]), ('a',))
    """
    options = dict(checks.instance(document, "prior", dict, 'a JSON object with a "distribution"'))
    name = checks.choice(options.pop("distribution", None), "distribution", (_GAUSSIAN, *FAMILIES))
    names = options.pop("names", None)
    known = ("mean", "covariance") if name == _GAUSSIAN else tuple(getattr(dist, name).arg_constraints)
    if set(options) != set(known):
        raise InputError(f"`prior`: {name} has {', '.join(map(repr, known))}; got {', '.join(map(repr, options))}.")
    if name == _GAUSSIAN:
        prior = GaussianPrior(**options)
    else:
        vectors = {argument: checks.vector(value, argument) for argument, value in options.items()}
        try:
            prior = getattr(dist, name)(**{key: jnp.asarray(value) for key, value in vectors.items()}).to_event(1)
        except ValueError as error:
            raise InputError(f"`prior`: {name} does not take these values ({error}).") from None
    width = unconstrained(prior).dim
    if names is not None and (not isinstance(names, list) or len(names) != width):
        raise InputError(f"`prior`: `names` must be a list of {width} strings; got {names!r}.")
    return prior, None if names is None else tuple(names)


def read_prior(path: Path) -> tuple[Any, tuple[str, ...] | None]:
    """The prior of a JSON file, and the names of its parameters if it has some."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"`prior` {path} cannot be read as JSON ({error}).") from None
    return prior_from_json(document)
