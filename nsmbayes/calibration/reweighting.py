"""Algorithm 2 of the paper: calibration of a sampled posterior by reweighting its draws to bootstrap resamples."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration.base import (
    Calibration,
    CalibrationResult,
    CalibrationStatus,
    check_options,
)
from nsmbayes.calibration.importance import reweighted_coverage
from nsmbayes.calibration.sampled import SampledProblem
from nsmbayes.calibration.stochastic import next_beta
from nsmbayes.samplers import Target
from nsmbayes.serialisation import registered


@registered
@dataclass(frozen=True, kw_only=True)
class ReweightingCalibration(Calibration[SampledProblem]):
    """Stochastic approximation as in Algorithm 1; posteriors of resamples are reweighted draws of the full posterior.

    The draws are renewed at the current beta when the mean effective sample size of the reweighted draws falls below
    the fraction `refresh` of their number. Coverage from degenerate weights is not used: if the effective sample size
    of new draws is still below the fraction `refuse`, the calibration stops and reports it.
    """

    kind = "reweighting"
    problem = SampledProblem

    initial_beta: float = 1.0
    steps: int = 20
    bootstraps: int = 100
    target: float = 0.95
    refresh: float = 0.3
    refuse: float = 0.02

    def __post_init__(self):
        checks.positive(self.initial_beta, "initial_beta")
        checks.integer(self.steps, "steps", at_least=1)
        check_options(bootstraps=self.bootstraps, target=self.target)
        checks.fraction(self.refresh, "refresh")
        checks.fraction(self.refuse, "refuse")

    def calibrate(self, problem: SampledProblem, *, seed: int) -> CalibrationResult:
        """Choose the learning rate for the data of `problem`."""
        rng = np.random.default_rng(seed)
        beta = self.initial_beta
        sampled_at, (target, draws) = beta, problem.draw(beta, seed)
        losses = problem.each_loss(target, draws)
        minimiser = loss_minimiser_by_adam(target, draws.flat.mean(axis=0))
        betas, coverages, status = [], [], CalibrationStatus.STEPS
        for t in range(self.steps):
            counts = problem.resample_counts(self.bootstraps, rng)
            log_weights = (sampled_at - beta * counts) @ losses.T
            coverage, ess = reweighted_coverage(draws.flat, log_weights, minimiser, self.target)
            if ess < self.refresh and sampled_at != beta:
                sampled_at, (target, draws) = beta, problem.draw(beta, seed + t + 1)
                losses = problem.each_loss(target, draws)
                log_weights = beta * (1 - counts) @ losses.T
                coverage, ess = reweighted_coverage(draws.flat, log_weights, minimiser, self.target)
            if ess < self.refuse:
                status = CalibrationStatus.DEGENERATE
                break
            betas.append(beta)
            coverages.append(coverage)
            beta = next_beta(beta, t, coverage - self.target, floor=self.initial_beta / 100)
        return CalibrationResult(
            beta=beta,
            betas=np.asarray(betas),
            coverages=np.asarray(coverages),
            target=self.target,
            minimiser=minimiser,
            status=status,
            method="stochastic approximation with reweighted draws (Algorithm 2)",
            bootstraps=self.steps * self.bootstraps,
            sequential=True,
        )


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
