"""Any prior in the unconstrained space R^d, where inference runs."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import biject_to, constraints

from nsmbayes._internal.parallel import by_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.priors.convert import as_prior
from nsmbayes.priors.gaussian import GaussianPrior
from nsmbayes.priors.independent import IndependentPrior
from nsmbayes.priors.product import Product

_DRAWS_FOR_UNITS = 200


class UnconstrainedPrior(eqx.Module):
    """Any numpyro distribution over theta, mapped to R^d by the bijector of its support, and rescaled to other units.

    `log_prob(u)` is the log density of the unconstrained theta at u, including the Jacobian of the bijector. The units
    are powers of 1024: parameters around 1e-5 and around 1e5 then have similar sizes for samplers, and parameters of
    ordinary size do not change.
    """

    distribution: Any
    units: Float[Array, " d"]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.distribution.event_shape[0]

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count d"]:
        """Draws of the prior in the unconstrained space."""
        return jax.vmap(self.unconstrain)(self.distribution.sample(key, (count,)))

    def constrain(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """Map u from R^d to theta in the user's space."""
        return biject_to(self.distribution.support)(self.units * u)

    def unconstrain(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Map theta from the user's space to R^d, the inverse of `constrain`."""
        return biject_to(self.distribution.support).inv(theta) / self.units

    def log_prob(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density of u in R^d."""
        transform = biject_to(self.distribution.support)
        theta = transform(self.units * u)
        jacobian = transform.log_abs_det_jacobian(self.units * u, theta)
        return self.distribution.log_prob(theta) + jnp.sum(jacobian)


@double_precision
def unconstrain_rows(prior: UnconstrainedPrior, theta: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    """Rows of theta, mapped from the user's space to R^d."""
    return np.asarray(_unconstrained(prior, jnp.asarray(theta)))


@eqx.filter_jit
def _unconstrained(prior: UnconstrainedPrior, theta: Float[Array, "m d"]) -> Float[Array, "m d"]:
    return jax.vmap(prior.unconstrain)(theta)


@double_precision
def unconstrained(prior: Any) -> UnconstrainedPrior:
    """Any prior that this package accepts, ready for sampling in R^d."""
    prior = as_prior(prior)
    if isinstance(prior, GaussianPrior):
        gaussian = dist.MultivariateNormal(jnp.asarray(prior.mean), jnp.asarray(prior.covariance))
        return UnconstrainedPrior(gaussian, _units(prior.std))
    if isinstance(prior, IndependentPrior):
        prior = prior.distribution
    if len(prior.event_shape) != 1 or prior.batch_shape:
        raise InputError(
            f"`prior` must be a distribution over one vector theta; got batch shape {prior.batch_shape} and event "
            f"shape {prior.event_shape}. Call .to_event(1) on independent scalars."
        )
    if prior.support is None or prior.support.is_discrete:
        raise InputError("`prior` must be continuous: a discrete parameter has no gradient for the sampler.")
    prior = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array_like(a) else a, prior)
    draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS_FOR_UNITS,)))
    u = np.asarray(jax.vmap(biject_to(prior.support).inv)(jnp.asarray(draws)))
    if not (np.isfinite(draws).all() and np.isfinite(u).all()):
        raise InputError(
            f"`prior` gives draws that are not finite, e.g. {draws[~np.isfinite(draws + u).all(axis=1)][0].tolist()}. "
            "Give it finite parameters and bounds, and a proper density: Uniform(-inf, inf) is none."
        )
    # Quartiles, since the variance may not exist. A bijector from a part of R^d already rescales.
    spread = np.where(_on_the_line(prior), np.ptp(np.quantile(draws, (0.25, 0.75), axis=0), axis=0), 1.0)
    return UnconstrainedPrior(prior, _units(spread))


def another_prior(prior: Any, parameter_names: Sequence[str]) -> UnconstrainedPrior:
    """Another prior over the same parameters, ready for sampling in R^d; parameters are matched by position."""
    found, names = unconstrained(prior), list(parameter_names)
    if found.dim != len(names):
        raise InputError(f"`prior` must have {len(names)} parameters; got {found.dim}.")
    own = list(prior.parameter_names) if isinstance(prior, IndependentPrior) else names
    if own != names and sorted(own) == sorted(names):
        raise InputError(f"`prior` must have its parameters in the order {', '.join(names)}; got {', '.join(own)}.")
    return found


def _on_the_line(prior: Any) -> Bool[np.ndarray, "..."]:
    """Which parameters have the whole real line as support."""
    if isinstance(prior, Product):
        return np.array([part.support == constraints.real for part in prior.parts])
    whole = (constraints.independent(constraints.real, 1), constraints.real_vector)
    return np.array(any(prior.support == each for each in whole))


def _units(spread: Float[np.ndarray, " d"]) -> Float[Array, " d"]:
    return jnp.asarray(1024.0 ** np.rint(np.log2(np.where(spread > 0, spread, 1.0)) / 10))


@double_precision
def constrain_rows(prior: UnconstrainedPrior, positions: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
    """Rows of unconstrained positions, mapped to the user's space."""
    rows = positions.reshape(-1, positions.shape[-1])
    with by_processor():  # moving many rows to a GPU and back would take longer
        return np.asarray(_constrained(prior, jnp.asarray(rows))).reshape(positions.shape)


@eqx.filter_jit
def _constrained(prior: UnconstrainedPrior, rows: Float[Array, "m d"]) -> Float[Array, "m d"]:
    return jax.vmap(prior.constrain)(rows)


@double_precision
def draw_prior(prior: UnconstrainedPrior, count: int) -> Float[np.ndarray, "count d"]:
    """Draws of theta in the user's space; every call returns the same draws."""
    return np.asarray(prior.distribution.sample(jax.random.key(0), (count,)))
