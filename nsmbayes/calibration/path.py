"""The default calibration of a sampled posterior: bootstrap coverage at every learning rate from one sweep.

Adaptive importance sampling leaves draws at all learning rates from 0, the prior, upwards. Pooled, they are draws from
one mixture, broad enough that reweighting them to the posterior of a resample, at any rate, leaves many effective
draws; where it does not, the rate is not judged.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes._seeds import seed_key
from nsmbayes.calibration.reweighting import (
    Calibrated,
    Draw,
    normalised,
    resample_counts,
    reweighted_coverage,
    total_losses,
)
from nsmbayes.minima import minimise
from nsmbayes.posteriors.generalised import Target, log_prior, total_loss
from nsmbayes.posteriors.learning_rate import Calibration, Verdict
from nsmbayes.samplers.independence import adapt


@dataclass(frozen=True, kw_only=True)
class PathCalibration:
    """The largest learning rate, up to `largest`, whose bootstrap coverage meets its target.

    Draws at `largest` are judged first: if they meet the target, they are the answer and nothing else is computed.

    Args:
        largest: the largest learning rate allowed. With noise levels, 1 is that of the likelihood.
        smallest: the smallest one tried.
        bootstraps: number of resamples; all learning rates are judged on the same ones.
        target: the wished coverage, and the probability of the regions.
        reference: what the regions should contain. "posterior-mean": the mean of the full posterior at the same rate.
            "minimiser": the minimiser of the loss, as in the paper, by Newton's method from many starts; where the data
            hardly identify a parameter it can lie so far out that no region contains it.
        particles: draws a stage of the sweep.
        grid: number of learning rates tried.
        least_ess: effective draws, on average over the resamples, below which a rate is not judged.
    """

    largest: float = 1.0
    smallest: float = 1 / 64
    bootstraps: int = 200
    target: float = 0.95
    reference: Literal["posterior-mean", "minimiser"] = "posterior-mean"
    particles: int = 1000
    grid: int = 25
    least_ess: float = 50.0

    def __post_init__(self):
        if _checks.positive(self.largest, "largest") <= _checks.positive(self.smallest, "smallest"):
            raise InputError(f"`largest` ({self.largest}) must exceed `smallest` ({self.smallest}).")
        _checks.integer(self.bootstraps, "bootstraps", at_least=2)
        _checks.positive(_checks.fraction(self.target, "target"), "target")
        _checks.choice(self.reference, "reference", ("posterior-mean", "minimiser"))
        _checks.integer(self.particles, "particles", at_least=100)
        _checks.integer(self.grid, "grid", at_least=2)
        _checks.positive(self.least_ess, "least_ess")

    def __call__(self, draw: Draw, n: int, *, seed: int) -> Calibrated:
        """The calibrated learning rate and draws at it; `draw(beta, seed)` samples the posterior of the full data."""
        counts = resample_counts(n, self.bootstraps, np.random.default_rng(seed))
        target, draws = draw(self.largest, seed)
        minimiser = None
        if self.reference == "minimiser":
            minimiser = minimise(total_loss, target, draws.flat[:: -(-len(draws.flat) // 32)]).points[0]
        losses = total_losses(target, draws.flat, counts)
        log_weights = -self.largest * (losses.resampled - losses.full)
        reference = draws.flat.mean(axis=0) if minimiser is None else minimiser
        coverage, ess = reweighted_coverage(draws.flat, log_weights, reference, self.target)
        if coverage >= self.target and ess * len(draws.flat) >= self.least_ess:
            betas, coverages = np.array([self.largest]), np.array([coverage])
            beta, verdict = self.largest, Verdict.UNBOUNDED
        else:
            pool = sweep(target, self.largest, self.particles, seed)
            losses = total_losses(target, pool.positions, counts)
            betas = np.geomspace(self.smallest, self.largest, self.grid)
            coverages = np.array([self._coverage(pool, losses.resampled, beta, minimiser) for beta in betas])
            beta, verdict = choose(betas, coverages, self.target)
            target, draws = draw(beta, seed)
        calibration = Calibration(
            beta=beta,
            betas=betas,
            coverages=coverages,
            target=self.target,
            minimiser=minimiser,
            verdict=verdict,
            method="bootstrap coverage along a tempered path",
            bootstraps=self.bootstraps,
            degenerate=0,
        )
        return Calibrated(calibration, target, draws)

    def _coverage(self, pool: "Pool", resampled: np.ndarray, beta: float, minimiser: np.ndarray | None) -> float:
        reference = minimiser
        if reference is None:
            reference = normalised(-beta * pool.losses - pool.log_density) @ pool.positions
        log_weights = -beta * resampled - pool.log_density
        coverage, ess = reweighted_coverage(pool.positions, log_weights, reference, self.target)
        return coverage if ess * len(pool.positions) >= self.least_ess else np.nan


def choose(betas: Float[np.ndarray, " k"], coverages: Float[np.ndarray, " k"], target: float) -> tuple[float, Verdict]:
    """The largest rate that meets the target; coverage that could not be judged is NaN."""
    met = np.flatnonzero(coverages >= target)
    judged = np.flatnonzero(~np.isnan(coverages))
    if not judged.size:
        return float(betas[0]), Verdict.DEGENERATE
    if not met.size:
        return float(betas[judged[coverages[judged].argmax()]]), Verdict.UNREACHED
    if met[-1] == len(betas) - 1:
        return float(betas[-1]), Verdict.UNBOUNDED
    return float(betas[met[-1]]), Verdict.REACHED if met[-1] < judged[-1] else Verdict.PARTLY_JUDGED


class Pool(NamedTuple):
    """The draws of all stages of a sweep as draws from one mixture."""

    positions: Float[np.ndarray, "draws d"]
    losses: Float[np.ndarray, " draws"]
    log_density: Float[np.ndarray, " draws"]
    """Of the mixture, relative to the prior's."""


@double_precision
def sweep(target: Target, largest: float, particles: int, seed: int) -> Pool:
    """Draws around the posteriors at learning rates from 0 to `largest`."""
    prior_key, key = jax.random.split(seed_key(seed))
    start = np.asarray(target.prior.sample(prior_key, particles))
    found = adapt(log_prior, total_loss, start, target, beta=largest, key=key)
    possible = np.isfinite(found.losses) & np.isfinite(found.log_priors)
    return Pool(
        found.positions[possible],
        found.losses[possible],
        found.log_proposals[possible] - found.log_priors[possible],
    )
