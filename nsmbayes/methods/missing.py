"""Observations with missing cells: checks, and imputation for location, scatter and excess."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.losses.missing import MarginalSetting, patterns
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers import trimmed_fit
from nsmbayes.surrogates import Density, MixtureDensity

MARGINALISE = "marginalise"
_GUESSED_FROM = 400  # maximum number of observations for the first guess of the parameter


def check_missing(missing: str | None) -> bool:
    """Return whether NaN marks a cell that was not observed."""
    return missing is not None and checks.choice(missing, "missing", (MARGINALISE,)) == MARGINALISE


def as_mixture(density: Density) -> MixtureDensity:
    """Return `density`; raise `InputError` if it is not a mixture, with margins in closed form."""
    if not isinstance(density, MixtureDensity):
        raise InputError(
            f"`x` has missing cells, and a {type(density).__name__} cannot be marginalised in closed form. Train a "
            "mixture, surrogate='mdn', or drop the rows."
        )
    return density


@double_precision
def completed(
    prior: UnconstrainedPrior, density: MixtureDensity, x: Float[np.ndarray, "n d_x"], seed: int
) -> Float[np.ndarray, "n d_x"]:
    """Return `x` with missing cells drawn, given the others of their row, from the Gaussian with the model's moments.

    The parameter is the one that best explains the better half of the rows, by their loss per cell. The imputed cells
    are used only for location, scatter and the number of similar rows, never for the loss.
    """
    rng = np.random.default_rng([seed, len(x)])
    some = x[rng.permutation(len(x))[:_GUESSED_FROM]]
    scale = density.scale_x
    plain = eqx.tree_at(lambda one: (one.scale_x.centre, one.scale_x.scale), density, _identity(x.shape[1]))
    loss = MarginalSetting.of_nle(plain).loss((some - np.asarray(scale.centre)) / np.asarray(scale.scale))
    per_cell = x.shape[1] / (~np.isnan(some)).sum(axis=1)
    moments = density.moments(jnp.asarray(trimmed_fit(prior, loss.reweighted(per_cell), seed=0)))
    mean, covariance, found = np.asarray(moments.mean), np.asarray(moments.covariance), x.copy()
    for seen, rows in patterns(x):
        unseen = np.setdiff1d(np.arange(x.shape[1]), seen)
        if not unseen.size:
            continue
        slope = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, unseen)]).T
        left = covariance[np.ix_(unseen, unseen)] - slope @ covariance[np.ix_(seen, unseen)]
        noise = rng.multivariate_normal(np.zeros(unseen.size), (left + left.T) / 2, len(rows), method="eigh")
        found[np.ix_(rows, unseen)] = mean[unseen] + (x[np.ix_(rows, seen)] - mean[seen]) @ slope.T + noise
    return found


def _identity(d: int) -> tuple[jnp.ndarray, jnp.ndarray]:
    return jnp.zeros(d), jnp.ones(d)
