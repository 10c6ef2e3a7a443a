"""Posterior influence functions: the effect of one observation on the posterior, as a function of its value.

`pif_kl` is the KL divergence from the posterior to the posterior with one observation replaced by x^c. `pif_delta` is
the derivative of the density with respect to the fraction of the data at x^c (Ghosh and Basu), relative to the density.
Both keep the weight fixed, as the theorems do.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.losses.statistics import each_loss as each_quadratic
from nsmbayes.posteriors import ConjugatePosterior, GeneralisedPosterior, Influence, Posterior
from nsmbayes.posteriors.influence import influence_by_reweighting
from nsmbayes.samplers import Compression, each_loss

_DRAWS = 500
_STEP = 1e-6  # step in the fraction of the data at x^c, for a difference quotient
_BLOCK = 256  # number of points x^c whose losses are computed together


class DensityInfluence(NamedTuple):
    """PIF_Delta(x^c, theta) / posterior(theta) for every x^c, per unit of the fraction of the data at x^c."""

    relative: Float[np.ndarray, "k draws"]
    """at draws theta of the posterior"""
    total_variation: Float[np.ndarray, " k"]
    """half the integral of |PIF_Delta| over theta"""

    @property
    def largest(self) -> Float[np.ndarray, " k"]:
        """The largest |relative| over the draws."""
        return np.abs(self.relative).max(axis=1)


def pif_kl(posterior: Posterior, x_c: Any, *, replace: int = 0) -> Influence:
    """PIF_KL: KL(posterior || posterior with observation `replace` replaced by x^c), for every row of `x_c`.

    Computed in closed form for a conjugate posterior, otherwise by reweighting the draws.
    """
    x_c = posterior.points(x_c, "x_c")
    if not 0 <= checks.integer(replace, "replace") < posterior.n:
        raise InputError(f"`replace` must be the number of an observation, below {posterior.n}; got {replace}.")
    if isinstance(posterior, ConjugatePosterior):
        old = posterior.x[replace : replace + 1]
        A, B, _ = _quadratics(posterior, np.concatenate([old, x_c]))
        return Influence(posterior.kl_to(A[1:] - A[0], B[1:] - B[0]), np.ones(len(x_c), bool))
    posterior = _with_loss(posterior)
    draws = posterior.thinned(_DRAWS)
    a = -posterior.beta * losses_at(posterior, x_c, draws)
    a += posterior.beta * posterior.row_losses(draws, np.array([replace]))
    return influence_by_reweighting(a)


def pif_delta(posterior: Posterior, x_c: Any, *, draws: int = _DRAWS) -> DensityInfluence:
    """PIF_Delta relative to the posterior density, at draws of the posterior, for every row of `x_c`.

    d/d epsilon of the posterior density for the data (1 - epsilon) P_n + epsilon delta(x^c), divided by the density, is
    -beta n (D(theta) - E D), with D = loss(theta; x^c) - the average loss of the observations.
    """
    x_c, draws = posterior.points(x_c, "x_c"), checks.integer(draws, "draws", at_least=2)
    if isinstance(posterior, ConjugatePosterior):
        theta, at_x = posterior.sample((draws,), seed=0), _quadratics(posterior, x_c)
        if posterior.resolution:
            return _density_influence(_by_difference(posterior, at_x, theta))
        difference = _at(at_x, theta) - posterior.loss(theta)
    else:
        posterior = _with_loss(posterior)
        theta = posterior.thinned(draws)
        average = each_loss(posterior.target, theta).sum(axis=1) / posterior.n
        difference = losses_at(posterior, x_c, theta).T - average
    return _density_influence(-posterior.beta * posterior.n * (difference - difference.mean(axis=1, keepdims=True)))


def _density_influence(relative: Float[np.ndarray, "k draws"]) -> DensityInfluence:
    return DensityInfluence(relative, 0.5 * np.abs(relative).mean(axis=1))


def _by_difference(
    posterior: ConjugatePosterior, at_x: Quadratic, theta: Float[np.ndarray, "draws d"]
) -> Float[np.ndarray, "k draws"]:
    """PIF_Delta by a difference quotient: with one learning rate per direction, the rates also depend on the data."""

    def log_prob(epsilon: float) -> Float[np.ndarray, "k draws"]:
        mixed = Quadratic(
            *(
                (1 - epsilon) * total + epsilon * posterior.n * a
                for total, a in zip(posterior.statistics.total, at_x, strict=True)
            )
        )
        mean, precision = gaussian_posterior(posterior.prior, mixed, posterior.beta, posterior.resolution)
        residual = theta - mean[:, None]
        square = np.einsum("ksi,kij,ksj->ks", residual, precision, residual)
        return 0.5 * (np.linalg.slogdet(precision)[1][:, None] - square)

    return (log_prob(_STEP) - log_prob(-_STEP)) / (2 * _STEP)


def line(posterior: Posterior, distances: Any, direction: Any = None) -> Float[np.ndarray, "k d_x"]:
    """Return points at given robust distances from the bulk, along a direction (by default the first axis)."""
    distances = checks.vector(distances, "distances")
    location, scatter = posterior.location_scatter
    along = np.eye(len(location))[0]
    if direction is not None:
        along = checks.vector(direction, "direction", length=len(location))
    length = np.sqrt(along @ np.linalg.solve(scatter, along))
    if not length > 0:
        raise InputError("`direction` must not be zero.")
    return location + distances[:, None] * along / length


@double_precision
def losses_at(
    posterior: GeneralisedPosterior, x_c: Float[np.ndarray, "k d_x"], draws: Float[np.ndarray, "draws d"]
) -> Float[np.ndarray, "draws k"]:
    """The loss of observations at x^c, with the weight kept fixed, at unconstrained draws of the posterior."""
    blocks = []
    # in several dimensions, the noise nodes depend on the row number in a data set of this size
    size = _BLOCK if x_c.shape[1] == 1 else posterior.n
    if isinstance(posterior.compression, Compression):
        size = posterior.compression.full.size
    for start in range(0, len(x_c), size):
        rows = x_c[start : start + size]
        missing = (1 << (len(rows) - 1).bit_length()) - len(rows) if size == _BLOCK else size - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)])  # few sizes to compile
        moved = posterior.target._replace(loss=posterior.setting.loss(padded))
        blocks.append(each_loss(moved, draws)[:, : len(rows)])
    return np.concatenate(blocks, axis=1)


def _with_loss(posterior: Posterior) -> GeneralisedPosterior:
    if not isinstance(posterior, GeneralisedPosterior):
        raise InputError(
            f"{posterior.label} has no loss that is a sum over observations: build its posterior again with an "
            "observation replaced, and compare."
        )
    return posterior


def _quadratics(posterior: ConjugatePosterior, x: Float[np.ndarray, "k d_x"]) -> Quadratic:
    """The losses of observations at `x`, with the weight kept fixed."""
    parts = zip(*each_quadratic(posterior.statistics.loss, x), strict=True)
    return Quadratic(*map(np.concatenate, parts))


def _at(loss: Quadratic, theta: Float[np.ndarray, "draws d"]) -> Float[np.ndarray, "k draws"]:
    A, B, C = loss
    return np.einsum("si,kij,sj->ks", theta, A, theta) + 2 * B @ theta.T + C[:, None]
