"""A prior of independent parameters, each with its own name and distribution."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.columns import check_names
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.priors.product import Product
from nsmbayes.priors.scalars import as_scalar


class IndependentPrior:
    """A prior of independent parameters, each with its own name and distribution.

    Args:
        parameters: a mapping of names to distributions, for names that are not valid Python identifiers.
        named: distributions by name, as keyword arguments. Distributions are continuous scalars of numpyro, torch or
            scipy (frozen).

    Methods take the names as their `parameter_names`. If all distributions are normal, the prior can be used as a
    Gaussian prior, also for `NSMBayesConj`.

    Example:
        >>> import nsmbayes as nsm
        >>> from numpyro.distributions import Normal, Uniform
        >>> prior = nsm.IndependentPrior(a=Normal(0, 1), rate=Uniform(0, 5))
        >>> prior.parameter_names, prior.sample((3,), seed=0).shape
        (('a', 'rate'), (3, 2))
        >>> nsm.NSMBayes(prior).parameter_names
        ('a', 'rate')
    """

    @double_precision
    def __init__(self, parameters: Mapping[str, Any] | None = None, /, **named: Any):
        given = dict(checks.instance({} if parameters is None else parameters, "parameters", Mapping, "a mapping"))
        if both := sorted(set(given) & set(named)):
            raise InputError(f"`{both[0]}` is given twice: in the mapping and as a keyword.")
        given |= named
        if not given:
            raise InputError("A prior needs parameters, e.g. IndependentPrior(a=Normal(0, 1), rate=Uniform(0, 5)).")
        self.parameter_names = check_names(list(given), "parameters")
        self.parts: tuple[dist.Distribution, ...] = tuple(as_scalar(part, name) for name, part in given.items())

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.parts)

    @property
    def distribution(self) -> Product:
        """The prior as a numpyro distribution over a vector."""
        return Product(self.parts)

    @property
    @double_precision
    def mean(self) -> Float[np.ndarray, " d"]:
        """The prior means; NaN where a mean does not exist."""
        return np.asarray(self.distribution.mean, dtype=np.float64)

    @property
    @double_precision
    def std(self) -> Float[np.ndarray, " d"]:
        """Marginal standard deviations; NaN or infinite where a standard deviation does not exist."""
        return np.sqrt(np.asarray(self.distribution.variance, dtype=np.float64))

    @double_precision
    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid."""
        return np.exp(self._log_prob(j, np.asarray(grid)))

    @double_precision
    def sample(self, shape: tuple[int, ...] | int, seed: int) -> Float[np.ndarray, "... d"]:
        """Draws of shape `shape + (d,)`."""
        shape, key = checks.shape(shape, "shape"), random_key(checks.integer(seed, "seed"))
        return np.asarray(self.distribution.sample(key, shape), dtype=np.float64)

    @double_precision
    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Log density at points of shape (..., d); minus infinity outside the support."""
        theta = checks.finite_array(theta, "theta")
        if theta.ndim == 0 or theta.shape[-1] != self.dim:
            raise InputError(f"`theta` must have shape (..., {self.dim}); got {theta.shape}.")
        return np.sum([self._log_prob(j, theta[..., j]) for j in range(self.dim)], axis=0)

    def _log_prob(self, j: int, values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        part: Any = self.parts[j]
        points = jnp.asarray(values)
        inside = part.support(points)
        within = jnp.where(inside, points, part.support.feasible_like(points))
        return np.asarray(jnp.where(inside, part.log_prob(within), -jnp.inf))

    def __repr__(self) -> str:
        return f"IndependentPrior({', '.join(map(self._told, range(self.dim)))})"

    def _told(self, j: int) -> str:
        part: Any = self.parts[j]
        numbers = ", ".join(f"{np.asarray(getattr(part, name)).item():g}" for name in part.arg_constraints)
        return f"{self.parameter_names[j]}={type(part).__name__}({numbers})"
