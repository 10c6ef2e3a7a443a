"""The density to sample: exp(-beta loss(theta)) prior(theta), in the unconstrained space."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses import Loss
from nsmbayes.priors import UnconstrainedPrior


class Target(NamedTuple):
    """Everything the density of a generalised posterior depends on; a pytree, so new data need no recompilation."""

    prior: UnconstrainedPrior
    loss: Loss
    beta: Float[Array | np.ndarray, ""]


def log_prob(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Unnormalised log density of the unconstrained parameter u; -inf where the loss is not finite."""
    loss = total_loss(u, target)
    return log_prior(u, target) - target.beta * jnp.where(jnp.isfinite(loss), loss, jnp.inf)


def log_density(theta: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Unnormalised log density of theta in the user's space; -inf outside the support of the prior."""
    prior = target.prior
    inside = jnp.all(prior.distribution.support(theta))
    safe = jnp.where(inside, theta, prior.constrain(jnp.zeros_like(theta)))
    loss = target.loss(safe)
    found = prior.distribution.log_prob(safe) - target.beta * jnp.where(jnp.isfinite(loss), loss, jnp.inf)
    return jnp.where(inside, found, -jnp.inf)


def log_prior(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Log density of the prior at the unconstrained parameter u."""
    return target.prior.log_prob(u)


def total_loss(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Sum of the losses at the unconstrained parameter u."""
    return target.loss(target.prior.constrain(u))


def require_finite(log_densities: Float[np.ndarray, "..."], where: str) -> None:
    """Raise `ConvergenceError` if the posterior density is finite at none of the parameters that were tried."""
    if not np.isfinite(log_densities).any():
        raise ConvergenceError(
            f"The loss is NaN or infinite at all {log_densities.size:,} {where}: there is no posterior to sample. An "
            "observation may be too far outside the range of the simulations for the surrogate: look for codes of "
            "missing values such as 1e300, and drop them. NSMBayes gives far observations no weight; NLE cannot."
        )


@double_precision
def each_loss(target: Target, positions: Float[np.ndarray, "draws d"]) -> Float[np.ndarray, "draws n"]:
    """The loss of each observation at many unconstrained parameters."""
    return map_rows(_each, positions, target)


def _each(u: Float[Array, " d"], target: Target) -> Float[Array, " n"]:
    return target.loss.each(target.prior.constrain(u))
