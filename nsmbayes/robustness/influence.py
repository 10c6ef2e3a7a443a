"""Posterior influence functions: how far one observation, wherever it lies, moves the posterior.

`pif_kl` is the KL divergence from the posterior to the one with an observation replaced by x^c; `pif_delta` the
derivative of the density as x^c takes a share of the data (Ghosh and Basu), relative to the density. Both keep the
weight as it stands, as the theorems do.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes.losses import Quadratic
from nsmbayes.posteriors import Posterior
from nsmbayes.posteriors.conjugate import ConjugatePosterior, gaussian_posterior
from nsmbayes.posteriors.data_loss import NLELoss, NSMLoss, nsm_loss
from nsmbayes.posteriors.family_loss import each_loss as each_quadratic
from nsmbayes.posteriors.generalised import GeneralisedPosterior, each_loss, tilted_kl

RELIABLE = 0.1  # effective draws, as a share of all, from which on an estimate by reweighting is trusted
_DRAWS = 500
_Coefficients = tuple[Float[np.ndarray, "k d d"], Float[np.ndarray, "k d"], Float[np.ndarray, " k"]]
_STEP = 1e-6  # of the share that x^c takes, for a difference quotient
_BLOCK = 256  # points x^c whose losses are computed together


class Influence(NamedTuple):
    """KL divergences, and whether each can be relied on: always in closed form, from draws if enough of them count."""

    kl: Float[np.ndarray, " k"]
    reliable: Bool[np.ndarray, " k"]


class DensityInfluence(NamedTuple):
    """PIF_Delta(x^c, theta) / posterior(theta), for one x^c a row: per unit of the share that x^c takes of the data."""

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

    In closed form for a conjugate posterior, by reweighting the draws for any other.
    """
    x_c = _points(posterior, x_c)
    if not 0 <= _checks.integer(replace, "replace") < posterior.n:
        raise InputError(f"`replace` must be the number of an observation, below {posterior.n}; got {replace}.")
    old = posterior.x[replace : replace + 1]
    if isinstance(posterior, ConjugatePosterior):
        A, B, _ = _quadratics(posterior, np.concatenate([old, x_c]))
        return Influence(posterior.kl_to(A[1:] - A[0], B[1:] - B[0]), np.ones(len(x_c), bool))
    draws = posterior.thinned(_DRAWS)
    a = -posterior.beta * losses_at(posterior, x_c, draws)
    a += posterior.beta * each_loss(posterior.target, draws)[:, replace : replace + 1]
    return _by_reweighting(a)


def leave_one_out(posterior: Posterior) -> Influence:
    """KL(posterior || posterior without observation i), for every observation."""
    if isinstance(posterior, ConjugatePosterior):
        return Influence(posterior.influence(), np.ones(posterior.n, bool))
    return _by_reweighting(posterior.beta * each_loss(posterior.target, posterior.thinned(_DRAWS)))


def _by_reweighting(a: Float[np.ndarray, "draws k"]) -> Influence:
    kl, effective = tilted_kl(a)
    return Influence(kl, effective >= RELIABLE * len(a))


def pif_delta(posterior: Posterior, x_c: Any, *, draws: int = _DRAWS) -> DensityInfluence:
    """PIF_Delta over the posterior density, at draws of the posterior, for every row of `x_c`.

    d/d epsilon of the posterior density for the data (1 - epsilon) P_n + epsilon delta(x^c) is, over the density,
    -beta n (D(theta) - E D), with D = loss(theta; x^c) - the average loss of the observations.
    """
    x_c, draws = _points(posterior, x_c), _checks.integer(draws, "draws", at_least=2)
    if isinstance(posterior, ConjugatePosterior):
        theta, at_x = posterior.sample((draws,), seed=0), _quadratics(posterior, x_c)
        if posterior.resolution:
            return _influence(_by_difference(posterior, at_x, theta))
        difference = _at(at_x, theta) - posterior.loss(theta)
    else:
        theta = posterior.thinned(draws)
        total = each_loss(posterior.target, theta).mean(axis=1)
        difference = losses_at(posterior, x_c, theta).T - total
    return _influence(-posterior.beta * posterior.n * (difference - difference.mean(axis=1, keepdims=True)))


def _influence(relative: Float[np.ndarray, "k draws"]) -> DensityInfluence:
    return DensityInfluence(relative, 0.5 * np.abs(relative).mean(axis=1))


def _by_difference(
    posterior: ConjugatePosterior, at_x: _Coefficients, theta: Float[np.ndarray, "draws d"]
) -> Float[np.ndarray, "k draws"]:
    """The same where the learning rate is one for each direction, and follows the data: a difference quotient."""

    def log_density(epsilon: float) -> Float[np.ndarray, "k draws"]:
        A, B, C = (
            (1 - epsilon) * total + epsilon * posterior.n * a for total, a in zip(posterior.total, at_x, strict=True)
        )
        mean, precision = gaussian_posterior(posterior.prior, Quadratic(A, B, C), posterior.beta, posterior.resolution)
        residual = theta - mean[:, None]
        square = np.einsum("ksi,kij,ksj->ks", residual, precision, residual)
        return 0.5 * (np.linalg.slogdet(precision)[1][:, None] - square)

    return (log_density(_STEP) - log_density(-_STEP)) / (2 * _STEP)


def line(posterior: Posterior, distances: Any, direction: Any = None) -> Float[np.ndarray, "k d_x"]:
    """Points at the given robust distances from the bulk of the data, along a direction (the first axis by default)."""
    distances = _checks.vector(distances, "distances")
    location, scatter = posterior.location_scatter
    along = np.eye(len(location))[0] if direction is None else _checks.vector(
        direction, "direction", length=len(location)
    )  # fmt: skip
    length = np.sqrt(along @ np.linalg.solve(scatter, along))
    if not length > 0:
        raise InputError("`direction` must not be zero.")
    return location + distances[:, None] * along / length


@double_precision
def losses_at(
    posterior: GeneralisedPosterior, x_c: Float[np.ndarray, "k d_x"], draws: Float[np.ndarray, "draws d"]
) -> Float[np.ndarray, "draws k"]:
    """The loss of observations at x^c, with the weight as it stands, at unconstrained draws of the posterior."""
    target, loss = posterior.target, posterior.target.loss
    blocks = []
    # in several dimensions the nodes of the noise belong to the rows of a data set of this size
    size = _BLOCK if x_c.shape[1] == 1 else posterior.n
    for start in range(0, len(x_c), size):
        rows = x_c[start : start + size]
        missing = (1 << (len(rows) - 1).bit_length()) - len(rows) if size == _BLOCK else size - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)])  # few sizes to compile
        if type(loss) is NLELoss:
            moved = NLELoss(loss.surrogate, jnp.asarray(padded))
        elif type(loss) is NSMLoss:
            levels = tuple(np.unique(np.asarray(loss.h)).tolist())
            moved = nsm_loss(loss.surrogate, *posterior._trust, loss.frame, padded, levels)
        else:
            raise InputError(f"There is no loss at other observations for a {type(loss).__name__}.")
        blocks.append(each_loss(target._replace(loss=moved), draws)[:, : len(rows)])
    return np.concatenate(blocks, axis=1)


def _quadratics(posterior: ConjugatePosterior, x: Float[np.ndarray, "k d_x"]) -> _Coefficients:
    parts = zip(*each_quadratic(posterior.point_loss, x), strict=True)
    A, B, C = (np.concatenate(part) for part in parts)
    return A, B, C


def _at(loss: _Coefficients, theta: Float[np.ndarray, "draws d"]) -> Float[np.ndarray, "k draws"]:
    A, B, C = loss
    return np.einsum("si,kij,sj->ks", theta, A, theta) + 2 * B @ theta.T + C[:, None]


def _points(posterior: Posterior, x_c: Any) -> Float[np.ndarray, "k d_x"]:
    return _checks.matrix(x_c, "x_c", width=posterior.x.shape[1], width_is="columns, like the observations")
