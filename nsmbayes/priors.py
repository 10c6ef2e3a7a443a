"""Priors over the parameters, in the unconstrained space R^d where inference runs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import biject_to, constraints
from scipy import stats

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError

_DRAWS_FOR_UNITS = 200


class GaussianPrior:
    """A Gaussian prior N(mean, covariance) on R^d.

    Args:
        mean: the prior mean, shape (d,).
        covariance: a symmetric positive definite matrix (d, d), or a vector (d,) of variances.

    Example:
        >>> import nsmbayes as nsm
        >>> prior = nsm.GaussianPrior(mean=[0.0, 1.0], covariance=[4.0, 0.25])
        >>> prior.sample((3,), seed=0).shape
        (3, 2)
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]

    def __init__(self, mean: Any, covariance: Any):
        self.mean = checks.vector(mean, "mean")
        matrix = checks.finite_array(covariance, "covariance")
        if matrix.ndim == 1:
            matrix = np.diag(matrix)
        self.covariance = checks.covariance(matrix, "covariance", size=len(self.mean))

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.mean)

    @property
    def precision(self) -> Float[np.ndarray, "d d"]:
        """The inverse of the covariance."""
        return np.linalg.inv(self.covariance)

    @property
    def std(self) -> Float[np.ndarray, " d"]:
        """Marginal standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid."""
        return stats.norm.pdf(grid, self.mean[j], self.std[j])

    def sample(self, shape: tuple[int, ...] | int, seed: int) -> Float[np.ndarray, "... d"]:
        """Draws of shape `shape + (d,)`."""
        shape, rng = checks.shape(shape, "shape"), np.random.default_rng(checks.integer(seed, "seed"))
        return self.mean + rng.standard_normal((*shape, self.dim)) @ np.linalg.cholesky(self.covariance).T

    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Log density at points of shape (..., d)."""
        residual = np.linalg.solve(np.linalg.cholesky(self.covariance), (np.asarray(theta) - self.mean)[..., None])
        log_det = np.linalg.slogdet(2 * np.pi * self.covariance)[1]
        return -0.5 * ((residual[..., 0] ** 2).sum(-1) + log_det)

    def __repr__(self) -> str:
        return f"GaussianPrior(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"


def as_gaussian(prior: Any) -> GaussianPrior:
    """`prior` as a `GaussianPrior`: it is one already, or it is one of numpyro's normal distributions."""
    if isinstance(prior, GaussianPrior):
        return prior
    base = prior
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):
        base = base.base_dist
    if isinstance(base, dist.MultivariateNormal):
        return GaussianPrior(np.asarray(prior.mean), np.asarray(base.covariance_matrix))
    if isinstance(base, dist.Normal):
        return GaussianPrior(np.atleast_1d(prior.mean), np.atleast_1d(prior.variance))
    raise InputError(
        f"`prior` must be Gaussian for a posterior in closed form; got {type(prior).__name__}. Pass "
        "nsmbayes.GaussianPrior(mean, covariance) or a numpyro Normal or MultivariateNormal, after a change of "
        "variables (log, logit) if your parameters are bounded."
    )


class UnconstrainedPrior(eqx.Module):
    """Any numpyro distribution over theta, mapped to R^d by the bijector of its support, and there to other units.

    `log_prob(u)` is the log density of the unconstrained theta at u, including the Jacobian of the bijector. The units
    are powers of 1024: parameters of 1e-5 beside others of 1e5 are then of similar size for samplers, and those of an
    ordinary size stay as they are.
    """

    distribution: Any
    units: Float[Array, " d"]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.distribution.event_shape[0]

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count d"]:
        """Draws in the unconstrained space."""
        return jax.vmap(self.unconstrain)(self.distribution.sample(key, (count,)))

    def constrain(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """theta in the user's space."""
        return biject_to(self.distribution.support)(self.units * u)

    def unconstrain(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """The inverse of `constrain`."""
        return biject_to(self.distribution.support).inv(theta) / self.units

    def log_prob(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """log density of u in R^d."""
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
    if isinstance(prior, GaussianPrior):
        gaussian = dist.MultivariateNormal(jnp.asarray(prior.mean), jnp.asarray(prior.covariance))
        return UnconstrainedPrior(gaussian, _units(prior.std))
    if not isinstance(prior, dist.Distribution):
        raise InputError(
            f"`prior` must be an nsmbayes.GaussianPrior or a numpyro distribution; got {type(prior).__name__}."
        )
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
    spread = np.ones(prior.event_shape[0])
    if prior.support == constraints.independent(constraints.real, 1) or prior.support == constraints.real_vector:
        # Quartiles: there may be no variance. A bijector from a part of R^d brings units of its own.
        spread = np.ptp(np.quantile(draws, (0.25, 0.75), axis=0), axis=0)
    return UnconstrainedPrior(prior, _units(spread))


def _units(spread: Float[np.ndarray, " d"]) -> Float[Array, " d"]:
    return jnp.asarray(1024.0 ** np.rint(np.log2(np.where(spread > 0, spread, 1.0)) / 10))


@double_precision
def constrain_rows(prior: UnconstrainedPrior, positions: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
    """Rows of unconstrained positions, mapped to the user's space."""
    rows = positions.reshape(-1, positions.shape[-1])
    return np.asarray(_constrained(prior, jnp.asarray(rows))).reshape(positions.shape)


@eqx.filter_jit
def _constrained(prior: UnconstrainedPrior, rows: Float[Array, "m d"]) -> Float[Array, "m d"]:
    return jax.vmap(prior.constrain)(rows)


@double_precision
def draw_prior(prior: UnconstrainedPrior, count: int) -> Float[np.ndarray, "count d"]:
    """Draws of theta in the user's space; the same in every call."""
    return np.asarray(prior.distribution.sample(jax.random.key(0), (count,)))


def same_dimension(prior: GaussianPrior, dim: int) -> GaussianPrior:
    """`prior`, if it has `dim` parameters."""
    if prior.dim != dim:
        raise InputError(f"`prior` must have {dim} parameters; got {prior.dim}.")
    return prior
