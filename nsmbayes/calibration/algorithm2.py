"""Algorithm 2 of the paper: the learning rate of a sampled posterior, its draws reweighted to bootstrap resamples."""

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
from nsmbayes.calibration.reweighting import Calibrated, Draw, resample_counts, reweighted_coverage
from nsmbayes.posteriors.generalised import Target, each_loss
from nsmbayes.posteriors.learning_rate import Calibration, Verdict


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

    def __call__(self, draw: Draw, n: int, *, seed: int) -> Calibrated:
        """The calibrated learning rate and draws at it; `draw(beta, seed)` samples the posterior of the full data."""
        rng = np.random.default_rng(seed)
        beta = self.initial_beta
        sampled_at, (target, draws) = beta, draw(beta, seed)
        losses = each_loss(target, draws.flat)
        minimiser = loss_minimiser_by_adam(target, draws.flat.mean(axis=0))
        betas, coverages, verdict = [], [], Verdict.STEPS
        for t in range(self.steps):
            counts = resample_counts(n, self.bootstraps, rng)
            log_weights = (sampled_at - beta * counts) @ losses.T
            coverage, ess = reweighted_coverage(draws.flat, log_weights, minimiser, self.target)
            if ess < self.refresh and sampled_at != beta:
                sampled_at, (target, draws) = beta, draw(beta, seed + t + 1)
                losses = each_loss(target, draws.flat)
                log_weights = beta * (1 - counts) @ losses.T
                coverage, ess = reweighted_coverage(draws.flat, log_weights, minimiser, self.target)
            if ess < self.refuse:
                verdict = Verdict.DEGENERATE
                break
            betas.append(beta)
            coverages.append(coverage)
            beta = next_beta(beta, t, coverage - self.target, floor=self.initial_beta / 100)
        calibration = Calibration(
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
        return Calibrated(calibration, *draw(beta, seed))


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
