"""Conversion of priors from other packages."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.priors.gaussian import GaussianPrior
from nsmbayes.priors.independent import IndependentPrior
from nsmbayes.priors.product import Product
from nsmbayes.priors.scalars import as_scalar, from_scipy, from_torch, is_scipy, is_torch


@double_precision
def as_prior(prior: Any) -> Any:
    """`prior`, from any supported package, as a `GaussianPrior`, an `IndependentPrior` or a numpyro distribution.

    Distributions of torch are converted without importing torch: normal, uniform and other families of independent
    numbers, and sbi's `BoxUniform` and `MultipleIndependent`. From scipy, it converts frozen distributions, with one
    number or a vector of numbers in each argument, `multivariate_normal`, and a list of frozen distributions, one per
    parameter.

    Example:
        >>> from scipy import stats
        >>> from nsmbayes.priors import as_prior
        >>> as_prior(stats.norm([0.0, 1.0], 2.0))
        GaussianPrior(mean=[0.0, 1.0], covariance=[[4.0, 0.0], [0.0, 4.0]])
        >>> as_prior([stats.norm(0, 1), stats.uniform(0, 5)])
        IndependentPrior(theta_1=Normal(0, 1), theta_2=Uniform(0, 5))
    """
    if isinstance(prior, GaussianPrior | IndependentPrior | dist.Distribution):
        return prior
    if isinstance(prior, list | tuple) and prior:
        return _together([as_scalar(part, f"prior[{j}]") for j, part in enumerate(prior)])
    if is_torch(prior):
        base: Any = prior
        while type(base).__name__ == "Independent":
            base = base.base_dist
        if type(base).__name__ == "MultivariateNormal":
            return GaussianPrior(base.loc, base.covariance_matrix)
        return _together(from_torch(prior))
    if is_scipy(prior):
        return _together(from_scipy(prior))
    if type(prior).__name__ == "multivariate_normal_frozen":
        frozen: Any = prior
        return GaussianPrior(frozen.mean, frozen.cov)
    raise InputError(
        "`prior` must be an nsmbayes.GaussianPrior or IndependentPrior, or a distribution of numpyro, torch or scipy; "
        f"got {type(prior).__name__}."
    )


def _together(parts: list[dist.Distribution]) -> Any:
    """Independent scalars as one prior of the simplest possible kind."""
    if all(type(part) is dist.Normal for part in parts):
        return _gaussian(parts)
    if all(type(part) is dist.Uniform for part in parts):
        low, high = (jnp.stack([jnp.asarray(getattr(part, name)) for part in parts]) for name in ("low", "high"))
        return dist.Uniform(low, high).to_event(1)
    return IndependentPrior({f"theta_{j + 1}": part for j, part in enumerate(parts)})


def _gaussian(parts: Any, names: tuple[str, ...] | None = None) -> GaussianPrior:
    means, variances = zip(*((float(part.loc), float(part.scale) ** 2) for part in parts), strict=True)
    return GaussianPrior(np.array(means), np.array(variances), parameter_names=names)


@double_precision
def as_gaussian(prior: Any) -> GaussianPrior:
    """`prior` as a `GaussianPrior`, also if it is a normal distribution of numpyro, torch or scipy."""
    prior = as_prior(prior)
    base: Any = prior
    whole: Any = prior
    if isinstance(prior, GaussianPrior):
        return prior
    if isinstance(prior, IndependentPrior | Product) and all(type(part) is dist.Normal for part in prior.parts):
        return _gaussian(prior.parts, getattr(prior, "parameter_names", None))
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):
        base = base.base_dist
    if isinstance(base, dist.MultivariateNormal):
        return GaussianPrior(np.asarray(prior.mean), np.asarray(base.covariance_matrix))
    if isinstance(base, dist.Normal):
        return GaussianPrior(np.atleast_1d(whole.mean), np.atleast_1d(whole.variance))
    raise InputError(
        f"`prior` must be Gaussian for a posterior in closed form; got {type(prior).__name__}. Pass "
        "nsmbayes.GaussianPrior(mean, covariance) or a numpyro Normal or MultivariateNormal, after a change of "
        "variables (log, logit) if your parameters are bounded."
    )
