"""Generalised posteriors exp(-beta sum_i loss_i(theta)) prior(theta), by sampling."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp

from nsmbayes import _checks
from nsmbayes._parallel import map_rows
from nsmbayes._precision import double_precision
from nsmbayes.minima import descend, minimise
from nsmbayes.posteriors.data_loss import DataLoss
from nsmbayes.posteriors.doubts import describe_doubts
from nsmbayes.posteriors.drawn import DrawnPosterior, constrain
from nsmbayes.posteriors.learning_rate import Calibration
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers import Draws
from nsmbayes.weights import LocationScatter, Weight, evaluate_many

_INFLUENCE_DRAWS = 500
_ERROR_DRAWS = 64


class Target(NamedTuple):
    """Everything the density of a generalised posterior depends on; a pytree, so that new data recompile nothing."""

    prior: UnconstrainedPrior
    loss: DataLoss
    beta: Float[Array, ""]


def log_density(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Unnormalised log posterior density of the unconstrained parameter u; a loss that is not finite is a wall."""
    loss = target.loss(target.prior.constrain(u))
    return target.prior.log_density(u) - target.beta * jnp.where(jnp.isfinite(loss), loss, jnp.inf)


@double_precision
def starting_points(target: Target, candidates: Float[np.ndarray, "k d"], chains: int) -> Float[np.ndarray, "chains d"]:
    """The best of the candidates, one from each of `chains` equal groups."""
    values = map_rows(log_density, candidates, target).reshape(chains, -1)
    best = np.nan_to_num(values, nan=-np.inf).argmax(axis=1)
    return candidates.reshape(chains, -1, candidates.shape[1])[np.arange(chains), best]


class Start(NamedTuple):
    """Where chains begin, and a factor F of the covariance F F' that each may expect around there."""

    positions: Float[np.ndarray, "chains d"]
    factors: Float[np.ndarray, "chains d d"]


def around_modes(target: Target, starts: Float[np.ndarray, "chains d"], rng: np.random.Generator) -> Start:
    """Draws from the Gaussian approximations at the modes that the starts lead to.

    A mode that by these approximations holds less than a thousandth of the probability of the best one is given up:
    its chain begins at the best one. So chains still disagree if modes of any importance do.
    """
    chains, d = starts.shape
    points, energies, hessians = descend(_energy, target, starts, np.ones(d))
    usable = np.isfinite(hessians).all(axis=(1, 2)) & np.isfinite(energies)
    curvatures, axes = np.linalg.eigh(np.where(usable[:, None, None], hessians, np.eye(d)))
    scales = 1 / np.sqrt(np.clip(np.abs(curvatures), 1e-12, 1e12))
    log_masses = np.where(usable, np.log(scales).sum(axis=1) - energies, -np.inf)
    chosen = np.where(log_masses > log_masses.max() - np.log(1000), np.arange(chains), log_masses.argmax())
    factors = (axes * scales[:, None])[chosen]
    draws = points[chosen] + (factors @ rng.standard_normal((chains, d, 1)))[..., 0]
    possible = np.isfinite(map_rows(log_density, draws, target))
    return Start(np.where(possible[:, None], draws, points[chosen]), factors)


class Modes(NamedTuple):
    """Local maxima of a posterior density."""

    theta: Float[np.ndarray, "k d"]
    """Where they are."""
    height: Float[np.ndarray, " k"]
    """Log density relative to the highest one, in the unconstrained space."""
    share: Float[np.ndarray, " k"]
    """The share of the draws to which each is the nearest."""


def _energy(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    return -log_density(u, target)


class GeneralisedPosterior(DrawnPosterior):
    """Draws from a generalised posterior, the data they came from, and how far to trust them.

    Built by the `build_posterior` of a method.
    """

    result: Draws
    finer_loss: Callable[[], DataLoss] | None = None
    """Builds the loss with a finer rule for the expectation over noise, if there is noise."""

    def __init__(
        self,
        method: tuple[str, str],
        target: Target,
        result: Draws,
        x: Float[np.ndarray, "n d_x"],
        trust: tuple[Weight, LocationScatter],
        *,
        parameter_names: tuple[str, ...],
        calibration: Calibration | None = None,
    ):
        super().__init__(
            method,
            target.prior,
            constrain(target.prior, result.positions),
            x,
            parameter_names=parameter_names,
            beta=float(target.beta),
            result=result,
            calibration=calibration,
        )
        self.target, self._trust = target, trust

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weight w(x_i) of each observation, between 0 (ignored) and 1 (trusted)."""
        return self.weight_at(self.x)

    @double_precision
    def weight_at(self, x: Any) -> Float[np.ndarray, " k"]:
        """The weight that observations at other places would have."""
        w2, _ = evaluate_many(*self._trust, jnp.asarray(_checks.matrix(x, "x", width=self.x.shape[1])))
        return np.sqrt(np.asarray(w2))

    @property
    def location_scatter(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]:
        """The robust location and scatter of the observations."""
        return np.asarray(self._trust[1].location), np.asarray(self._trust[1].scatter)

    @double_precision
    def influence(self) -> Float[np.ndarray, " n"]:
        """KL(posterior || posterior without observation i), from the draws: log E e^a - E a with a = beta loss_i."""
        return tilted_kl(self.beta * each_loss(self.target, self.thinned()))[0]

    def thinned(self, draws: int = _INFLUENCE_DRAWS) -> Float[np.ndarray, "draws d"]:
        """About `draws` of the unconstrained draws, evenly spaced: enough for averages that are costly to compute."""
        flat = self.result.flat
        return flat[:: max(1, len(flat) // draws)]

    @double_precision
    def noise_error(self) -> float:
        """How much the rule for the noise matters: the standard deviation, over draws, of loss minus a finer rule's.

        To be compared with that of the log density itself, sqrt(d / 2) for a Gaussian: a tenth of it does not matter.
        """
        if self.finer_loss is None:
            return 0.0
        some = self.thinned(_ERROR_DRAWS)
        finer = self.target._replace(loss=self.finer_loss())
        losses = [map_rows(total_loss, some, target) for target in (self.target, finer)]
        return float(self.beta * np.std(losses[0] - losses[1]))

    @double_precision
    def losses(self, theta: Any) -> Float[np.ndarray, " n"]:
        """The loss of each observation at one theta."""
        return np.asarray(_losses(self.target.loss, jnp.asarray(_checks.vector(theta, "theta", length=self.dim))))

    def modes(self, starts: int = 64) -> Modes:
        """The local maxima of the posterior density that are found from many starts, the highest first.

        Half of the starts are draws of the posterior, half of the prior. A maximum that no draw is near to is one that
        the chains have missed, or one that holds next to no probability: compare its height.
        """
        half = _checks.integer(starts, "starts", at_least=2) // 2
        prior = np.asarray(_unconstrained_draws(self.target.prior, half))
        flat = self.result.flat
        minima = minimise(_energy, self.target, np.concatenate([flat[:: -(-len(flat) // half)], prior]))
        spread = np.maximum(flat.std(axis=0), 1e-12)
        nearest = (((flat[:, None] - minima.points) / spread) ** 2).sum(axis=2).argmin(axis=1)
        return Modes(
            theta=constrain(self.target.prior, minima.points[None])[0],
            height=minima.values[0] - minima.values,
            share=np.bincount(nearest, minlength=len(minima.points)) / len(flat),
        )

    def _about_observations(self) -> str:
        return describe_doubts(self.weights)


@double_precision
def _unconstrained_draws(prior: UnconstrainedPrior, count: int) -> np.ndarray:
    return np.asarray(prior.sample(jax.random.key(1), count))


def tilted_kl(a: Float[np.ndarray, "draws k"]) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """KL(p || p e^a / E e^a) = log E e^a - E a from draws of p, for many a, and how many of the draws count.

    If few count, log E e^a is underestimated, and the KL divergence with it.
    """
    log_total, log_square = (np.asarray(logsumexp(k * a, axis=0)) for k in (1, 2))
    kl = np.maximum(log_total - np.log(len(a)) - a.mean(axis=0), 0)
    return kl, np.exp(2 * log_total - log_square)


@double_precision
def each_loss(target: Target, positions: Float[np.ndarray, "draws d"]) -> Float[np.ndarray, "draws n"]:
    """The loss of each observation at many unconstrained parameters."""
    return map_rows(_each, positions, target)


def _each(u: Float[Array, " d"], target: Target) -> Float[Array, " n"]:
    return target.loss.each(target.prior.constrain(u))


def log_prior(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Log density of the prior at the unconstrained parameter u."""
    return target.prior.log_density(u)


def total_loss(u: Float[Array, " d"], target: Target) -> Float[Array, ""]:
    """Sum of the losses at the unconstrained parameter u."""
    return target.loss(target.prior.constrain(u))


@eqx.filter_jit
def _losses(loss: DataLoss, theta: Float[Array, " d"]) -> Float[Array, " n"]:
    return loss.each(theta)
