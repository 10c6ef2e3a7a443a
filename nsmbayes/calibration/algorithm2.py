"""Algorithm 2 of the paper: the learning rate of a sampled posterior, its draws reweighted to bootstrap resamples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from nsmbayes import _checks
from nsmbayes._precision import double_precision
from nsmbayes.calibration.algorithm1 import next_beta
from nsmbayes.posteriors.data_loss import DataLoss
from nsmbayes.posteriors.generalised import Target
from nsmbayes.posteriors.learning_rate import Calibration, Verdict
from nsmbayes.samplers import Draws

Draw = Callable[[float, int], tuple[Target, Draws]]


@dataclass(frozen=True, kw_only=True)
class ReweightingCalibration:
    """Stochastic approximation as in Algorithm 1; posteriors of resamples are reweighted draws of the full one.

    The draws are refreshed at the current beta when the mean effective sample size of the reweighted draws falls below
    `refresh` of their number. Coverage read off degenerate weights is not believed: if fresh draws still have less
    than `refuse` of their number, the calibration ends there and says so.
    """

    initial_beta: float = 1.0
    steps: int = 20
    bootstraps: int = 100
    target: float = 0.95
    refresh: float = 0.3
    refuse: float = 0.02

    def __post_init__(self):
        _checks.positive(self.initial_beta, "initial_beta")
        _checks.integer(self.steps, "steps", at_least=1)
        _checks.integer(self.bootstraps, "bootstraps", at_least=2)
        _checks.positive(_checks.fraction(self.target, "target"), "target")
        _checks.fraction(self.refresh, "refresh")
        _checks.fraction(self.refuse, "refuse")

    def __call__(self, draw: Draw, n: int, *, seed: int) -> Calibration:
        """The calibrated learning rate; `draw(beta, seed)` samples the posterior of the full data."""
        rng = np.random.default_rng(seed)
        beta = self.initial_beta
        sampled_at, (target, draws) = beta, draw(beta, seed)
        positions, losses = _losses(target, draws)
        minimiser = loss_minimiser_by_adam(target, positions.mean(axis=0))
        betas, coverages, verdict = [], [], Verdict.STEPS
        for t in range(self.steps):
            counts = rng.multinomial(n, np.full(n, 1 / n), size=self.bootstraps)
            log_weights = -(beta * counts @ losses.T - sampled_at * losses.sum(axis=1))
            coverage, ess = reweighted_coverage(positions, log_weights, minimiser, self.target)
            if ess < self.refresh and sampled_at != beta:
                sampled_at, (target, draws) = beta, draw(beta, seed + t + 1)
                positions, losses = _losses(target, draws)
                log_weights = -beta * (counts - 1) @ losses.T
                coverage, ess = reweighted_coverage(positions, log_weights, minimiser, self.target)
            if ess < self.refuse:
                verdict = Verdict.DEGENERATE
                break
            betas.append(beta)
            coverages.append(coverage)
            beta = next_beta(beta, t, coverage - self.target, floor=self.initial_beta / 100)
        return Calibration(
            beta=beta,
            betas=np.asarray(betas),
            coverages=np.asarray(coverages),
            target=self.target,
            minimiser=minimiser,
            verdict=verdict,
            method="stochastic approximation with reweighted draws (Algorithm 2)",
            bootstraps=self.steps * self.bootstraps,
            degenerate=0,
        )


def reweighted_coverage(
    positions: Float[np.ndarray, "draws d"],
    log_weights: Float[np.ndarray, "resamples draws"],
    minimiser: Float[np.ndarray, " d"],
    level: float,
) -> tuple[float, float]:
    """Fraction of reweighted regions that contain the minimiser, and the mean relative effective sample size.

    The region of a resample is the ellipsoid of the weighted mean and covariance that holds `level` of the weight.
    """
    W = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    W /= W.sum(axis=1, keepdims=True)
    inside = []
    for weights in W:
        mean = weights @ positions
        centred = positions - mean
        covariance = (weights[:, None] * centred).T @ centred
        # a few draws that carry all the weight have a singular covariance; such a resample counts through its ESS
        solve = np.linalg.pinv(covariance, hermitian=True)
        distances = np.einsum("ni,ij,nj->n", centred, solve, centred)
        order = np.argsort(distances)
        cut = distances[order][min(np.searchsorted(np.cumsum(weights[order]), level), len(order) - 1)]
        offset = minimiser - mean
        inside.append(offset @ solve @ offset <= cut)
    return float(np.mean(inside)), float((1 / (W**2).sum(axis=1)).mean() / len(positions))


@double_precision
def loss_minimiser_by_adam(
    target: Target, start: Float[np.ndarray, " d"], *, steps: int = 1000, learning_rate: float = 0.02
) -> Float[np.ndarray, " d"]:
    """The unconstrained parameter that minimises the loss, by Adam from `start` (the posterior mean, in the paper)."""
    return np.asarray(_adam(target, jnp.asarray(start), steps, learning_rate))


@eqx.filter_jit
def _adam(target: Target, start: Float[Array, " d"], steps: int, learning_rate: float) -> Float[Array, " d"]:
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def mean_loss(u):
        return target.loss.each(target.prior.constrain(u)).mean()

    def step(carry, _):
        u, state, best_u, best = carry
        value, gradient = jax.value_and_grad(mean_loss)(u)
        better = value < best
        best_u, best = jnp.where(better, u, best_u), jnp.where(better, value, best)
        updates, state = optimiser.update(gradient, state)
        return (u + updates, state, best_u, best), None

    start_state: Any = (start, optimiser.init(start), start, jnp.asarray(jnp.inf))
    return jax.lax.scan(step, start_state, length=steps)[0][2]


@double_precision
def _losses(target: Target, draws: Draws) -> tuple[Float[np.ndarray, "draws d"], Float[np.ndarray, "draws n"]]:
    return draws.flat, np.asarray(_each(target.loss, target.prior, jnp.asarray(draws.flat)))


@eqx.filter_jit
def _each(loss: DataLoss, prior: Any, positions: Float[Array, "draws d"]) -> Float[Array, "draws n"]:
    return jax.lax.map(lambda u: loss.each(prior.constrain(u)), positions, batch_size=32)
