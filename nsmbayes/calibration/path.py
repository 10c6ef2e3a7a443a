"""The default calibration of a sampled posterior: bootstrap coverage at every learning rate from one sweep.

Adaptive importance sampling generates draws at all learning rates from 0, the prior, upwards. Pooled, they are draws
from one mixture, which is broad enough that reweighting to the posterior of a resample, at any rate, leaves many
effective draws. Rates with too few effective draws are not judged. With more than six parameters few effective draws
are left, and coverage is computed by linear response instead.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import in_threads
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes._internal.waiting import stage
from nsmbayes.calibration.base import (
    Calibration,
    CalibrationResult,
    CalibrationStatus,
    check_options,
)
from nsmbayes.calibration.importance import normalised, reweighted_coverage
from nsmbayes.calibration.linear_response import linear_coverage
from nsmbayes.calibration.sampled import SampledProblem
from nsmbayes.errors import InputError
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers import Target, log_prior, minimise, total_loss
from nsmbayes.samplers.independence import FEW, adapt, evaluation
from nsmbayes.samplers.students import Population
from nsmbayes.serialisation import registered

JUDGED, _POOLED = 1000, 2000  # maximum number of draws to compute coverage, at the largest rate and at lower rates
_BY_PATH = "along a tempered path"
_FINER = 8  # multiple of the learning rates tried by linear response, where each is cheap


@registered
@dataclass(frozen=True, kw_only=True)
class PathCalibration(Calibration[SampledProblem]):
    """The largest learning rate, up to `largest`, whose bootstrap coverage meets its target.

    Draws at `largest` are checked first: if their coverage meets the target, nothing else is computed.

    Args:
        largest: the largest learning rate allowed. With noise levels, 1 is that of the likelihood.
        smallest: the smallest learning rate tried.
        bootstraps: number of resamples, the same for all learning rates.
        target: the target coverage, and the probability of the regions.
        reference: the point that the regions should contain. "posterior-mean": the mean of the full posterior at the
            same rate. "minimiser": the minimiser of the loss, as in the paper, by Newton's method from many starts; if
            the data hardly identify a parameter, it can be so far away that no region contains it.
        particles: draws per stage of the sweep, for samplers that leave no draws to reweight.
        grid: number of learning rates tried.
        least_ess: minimum effective sample size, averaged over the resamples, to judge a rate by reweighting. With more
            than six parameters, lower rates are judged by linear response instead.
    """

    kind = "path"
    problem = SampledProblem

    largest: float = 1.0
    smallest: float = 1 / 64
    bootstraps: int = 200
    target: float = 0.95
    reference: Literal["posterior-mean", "minimiser"] = "posterior-mean"
    particles: int = 1000
    grid: int = 25
    least_ess: float = 50.0

    def __post_init__(self):
        if checks.positive(self.largest, "largest") <= checks.positive(self.smallest, "smallest"):
            raise InputError(f"`largest` ({self.largest}) must exceed `smallest` ({self.smallest}).")
        check_options(bootstraps=self.bootstraps, target=self.target)
        checks.choice(self.reference, "reference", ("posterior-mean", "minimiser"))
        checks.integer(self.particles, "particles", at_least=100)
        checks.integer(self.grid, "grid", at_least=2)
        checks.positive(self.least_ess, "least_ess")

    def calibrate(self, problem: SampledProblem, *, seed: int) -> CalibrationResult:
        """Choose the learning rate for the data of `problem`."""
        stage("sampling, and calibrating the learning rate")
        counts = problem.resample_counts(self.bootstraps, np.random.default_rng(seed))
        target, draws = problem.draw(self.largest, seed)
        positions = draws.flat if draws.flat.shape[1] > FEW else draws.flat[:: -(-len(draws.flat) // JUDGED)]
        minimiser = None
        if self.reference == "minimiser":
            minimiser = minimise(total_loss, target, positions[:: -(-len(positions) // 32)]).points[0]
        losses = problem.total_losses(target, positions, counts)
        log_weights = -self.largest * (losses.resampled - losses.full)
        reference = draws.flat.mean(axis=0) if minimiser is None else minimiser
        coverage, ess = reweighted_coverage(positions, log_weights, reference, self.target)
        enough, how = ess * len(positions) >= self.least_ess, _BY_PATH
        if enough and coverage >= self.target:
            betas, coverages = np.array([self.largest]), np.array([coverage])
            beta, status = self.largest, CalibrationStatus.UNBOUNDED
        elif minimiser is None and positions.shape[1] > FEW:
            how = "by linear response"
            betas = np.geomspace(self.smallest, self.largest, _FINER * (self.grid - 1) + 1)
            coverages = linear_coverage(
                positions, losses.resampled - losses.full, self.largest, _covariance(target.prior), betas, self.target
            )
            beta, status = choose(betas, coverages, self.target)
        else:
            visited = draws.visited
            if visited is None:
                visited = sweep(target, self.largest, self.particles, seed)
            pool = pooled(visited, np.random.default_rng(seed))
            losses = problem.total_losses(target, pool.positions, counts)
            betas = np.geomspace(self.smallest, self.largest, self.grid)
            each = in_threads(lambda beta: self._coverage(pool, losses.resampled, beta, minimiser), betas)
            coverages = np.array(each)
            beta, status = choose(betas, coverages, self.target)
        return self.result(betas, coverages, beta, status, how, minimiser)

    def result(
        self,
        betas: Float[np.ndarray, " tried"],
        coverages: Float[np.ndarray, " tried"],
        beta: float,
        status: CalibrationStatus,
        how: str = _BY_PATH,
        minimiser: Float[np.ndarray, " d"] | None = None,
    ) -> CalibrationResult:
        """Build the result from the tried and chosen learning rates, with the options of this calibration."""
        return CalibrationResult(
            beta=beta,
            betas=betas,
            coverages=coverages,
            target=self.target,
            minimiser=minimiser,
            status=status,
            method=f"bootstrap coverage {how}",
            bootstraps=self.bootstraps,
        )

    def _coverage(self, pool: "Pool", resampled: np.ndarray, beta: float, minimiser: np.ndarray | None) -> float:
        reference = minimiser
        if reference is None:
            reference = normalised(-beta * pool.losses - pool.log_mixture) @ pool.positions
        log_weights = -beta * resampled - pool.log_mixture
        coverage, ess = reweighted_coverage(pool.positions, log_weights, reference, self.target)
        return coverage if ess * len(pool.positions) >= self.least_ess else np.nan


def choose(
    betas: Float[np.ndarray, " k"], coverages: Float[np.ndarray, " k"], target: float
) -> tuple[float, CalibrationStatus]:
    """Choose the largest rate that meets the target; coverage is NaN at rates that could not be judged."""
    met = np.flatnonzero(coverages >= target)
    judged = np.flatnonzero(~np.isnan(coverages))
    if not judged.size:
        return float(betas[0]), CalibrationStatus.DEGENERATE
    if not met.size:
        return float(betas[judged[coverages[judged].argmax()]]), CalibrationStatus.UNREACHED
    if met[-1] == len(betas) - 1:
        return float(betas[-1]), CalibrationStatus.UNBOUNDED
    return float(betas[met[-1]]), CalibrationStatus.REACHED if met[-1] < judged[-1] else CalibrationStatus.PARTLY_JUDGED


@double_precision
def _covariance(prior: UnconstrainedPrior) -> Float[np.ndarray, "d d"]:
    return np.atleast_2d(np.cov(np.asarray(prior.sample(jax.random.key(0), 4000)).T))


class Pool(NamedTuple):
    """The draws of all stages of a sweep as draws from one mixture."""

    positions: Float[np.ndarray, "draws d"]
    losses: Float[np.ndarray, " draws"]
    log_mixture: Float[np.ndarray, " draws"]
    """Log density of the mixture, relative to the prior's."""


@double_precision
def sweep(target: Target, largest: float, particles: int, seed: int) -> Population:
    """Draws around the posteriors at learning rates from 0 to `largest`."""
    prior_key, key = jax.random.split(seed_key(seed))
    start = np.asarray(target.prior.sample(prior_key, particles))
    return adapt(evaluation(log_prior, total_loss, target), start, beta=largest, key=key)


def pooled(visited: Population, rng: np.random.Generator) -> Pool:
    """Select at most 2,000 of the visited draws, as draws from one mixture."""
    possible = np.flatnonzero(np.isfinite(visited.losses) & np.isfinite(visited.log_priors))
    some = np.sort(rng.permutation(possible)[:_POOLED])
    return Pool(visited.positions[some], visited.losses[some], (visited.log_proposals - visited.log_priors)[some])
