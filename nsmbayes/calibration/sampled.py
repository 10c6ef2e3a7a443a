"""Calibration problems of sampled posteriors, whose draws are reweighted to bootstrap resamples."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.calibration.base import CalibrationProblem, resample_counts
from nsmbayes.losses import Loss
from nsmbayes.losses.cells import CountedLoss
from nsmbayes.losses.corrected import Correction, corrected
from nsmbayes.losses.interpolated import InterpolatedLoss
from nsmbayes.losses.pieces import Piece
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import Draws, Near, Sampler, Target, each_loss
from nsmbayes.samplers.compression import ACCEPTED, CHECKED, Compression
from nsmbayes.samplers.independence import FEW, adapt, effective_draws, evaluation, resample
from nsmbayes.samplers.students import Population
from nsmbayes.samplers.target import log_prior, total_loss

_ATTEMPTS = 2  # attempts to sample from a subset of observations; the second with new weights
_ROUGH, _STAGE = 1000, 500  # number of draws from the visited points, and of points that a stage adds


Counts = Int[np.ndarray, "resamples n"] | Float[np.ndarray, "resamples n"]


class SampledDraws(NamedTuple):
    """Draws, and the target that they were drawn from."""

    target: Target
    draws: Draws


class TotalLosses(NamedTuple):
    """Total losses at many parameters, of the full data and of each resample."""

    full: Float[np.ndarray, " draws"]
    resampled: Float[np.ndarray, "resamples draws"]


class SampledProblem(CalibrationProblem):
    """The posterior of a loss with a sampler, which starts from the draws `near` if they are given.

    Draws are cached: the same draws cost nothing again, and draws at other learning rates cost less.
    """

    def __init__(
        self,
        prior: UnconstrainedPrior,
        loss: Loss,
        n: int,
        sampler: Sampler,
        near: Near | None = None,
    ):
        self.n = n
        self._prior, self._loss, self._sampler = prior, loss, sampler
        self._near: Near | None = near
        self._drawn: dict[tuple[float, int], SampledDraws] = {}
        self._correction: Correction | None = None

    def draw(self, beta: float, seed: int) -> SampledDraws:
        """Draw from the posterior of the full data."""
        if (beta, seed) not in self._drawn:
            with jax.enable_x64(True):
                target = Target(self._prior, corrected(self._loss, self._correction), jnp.asarray(beta))
            if self._near is None:
                draws = self._sampler.sample(target, seed=seed)
            else:
                draws = self._sampler.sample_near(target, self._near, seed=seed)
            self._near = draws.flat if draws.visited is None else draws.visited
            self._drawn[beta, seed] = SampledDraws(target, draws)
        return self._drawn[beta, seed]

    @double_precision
    def rough(self, beta: float, seed: int, *, final: bool = False) -> Float[np.ndarray, "k d"]:
        """Rough draws for the mean and covariance of the posterior, by importance sampling if the sampler supports it.

        The next draws start from the points visited here. At a `final` learning rate, returns draws of the sampler.
        """
        known, d = self._near, self._prior.dim
        if final or (beta, seed) in self._drawn or not isinstance(known, Population) or d > FEW:
            return self.draw(beta, seed).draws.flat
        if effective_draws(known, beta) < _ROUGH / 2:
            target = Target(self._prior, corrected(self._loss, self._correction), jnp.asarray(beta))
            evaluate = evaluation(log_prior, total_loss, target)
            known = adapt(evaluate, np.zeros((_STAGE, d)), beta=beta, key=seed_key(seed), before=known, quick=True)
            self._near = known
        return resample(known, beta, _ROUGH)

    def correct(self, correction: Correction, beta: float, seed: int) -> None:
        """Subtract a correction from the loss; the next draws start from those at `beta`, shifted to first order."""
        flat = self.rough(beta, seed)
        theta = constrain_rows(self._prior, flat)
        moved = beta * (flat - flat.mean(axis=0)).T @ (theta - theta.mean(axis=0)) @ correction.gradient / len(flat)
        self._correction, self._near, self._drawn = correction, flat + moved, {}

    def resample_counts(self, resamples: int, rng: np.random.Generator) -> Counts:
        """How often each observation occurs in each bootstrap resample."""
        return resample_counts(self.n, resamples, rng)

    def each_loss(self, target: Target, draws: Draws) -> Float[np.ndarray, "draws n"]:
        """The loss of each observation at the draws."""
        return each_loss(target, draws.flat)

    def total_losses(self, target: Target, positions: Float[np.ndarray, "draws d"], counts: Counts) -> TotalLosses:
        """Losses of resamples at unconstrained parameters, without a table of the losses of all observations.

        The weights of the observations remain those of the full data.
        """
        full, resampled = map_rows(_totals, positions, target, counts.astype(float))
        return TotalLosses(full, resampled.T)


class CountedProblem(SampledProblem):
    """The posterior of very many observations of one column, counted in cells; see `losses.cells`."""

    def __init__(
        self,
        prior: UnconstrainedPrior,
        counted: CountedLoss,
        sampler: Sampler,
        near: Float[np.ndarray, "k d"] | None = None,
    ):
        super().__init__(prior, counted.loss, counted.cells.n, sampler, near)
        self.cells = counted.cells

    def resample_counts(self, resamples: int, rng: np.random.Generator) -> Counts:
        """Count of each cell in each bootstrap resample, relative to the data."""
        return self.cells.resample_counts(resamples, rng)


class InterpolatedProblem(SampledProblem):
    """The posterior of observations that are summarised by statistics; see `losses.interpolated`.

    The observations in the first block of `piece` are known individually, and represent all in resamples.
    """

    def __init__(
        self,
        prior: UnconstrainedPrior,
        loss: InterpolatedLoss,
        piece: Piece,
        sampler: Sampler,
        near: Near | None = None,
    ):
        super().__init__(prior, loss, piece.n, sampler, near)
        self.piece = piece

    def resample_counts(self, resamples: int, rng: np.random.Generator) -> Counts:
        """Count of each observation of the first block in each resample, relative to the data."""
        return self.piece.resample_counts(resamples, rng)

    def total_losses(self, target: Target, positions: Float[np.ndarray, "draws d"], counts: Counts) -> TotalLosses:
        """Losses of resamples at unconstrained parameters: the total loss plus the difference of each resample."""
        full, coefficients = map_rows(_total_and_coefficients, positions, target)
        rows = cast(InterpolatedLoss, target.loss).rows
        assert rows is not None
        return TotalLosses(full, full + (counts - 1.0) @ rows.at_many(coefficients).T)


class CompressedProblem(SampledProblem):
    """The posterior of very many observations, from a weighted subset; see `samplers.compression`."""

    def __init__(self, prior: UnconstrainedPrior, compression: Compression, sampler: Sampler):
        super().__init__(prior, compression.loss, compression.full.n, sampler, compression.pilot)
        self.compression = compression

    def resample_counts(self, resamples: int, rng: np.random.Generator) -> Counts:
        """Counts of the observations of the subset in resamples of all n, relative to their weights.

        The loss of n resampled observations varies around that of the data with n times the covariance of the loss of
        one observation. The loss of a resample of the m observations in the subset varies with m times this covariance.
        Its deviation is therefore multiplied by sqrt(n / m).
        """
        n, m = self.n, self.compression.observations
        return 1 + np.sqrt(n / m) * (resample_counts(m, resamples, rng) - 1) / self.compression.weights

    def check(self, beta: float, seed: int) -> Compression:
        """Compare the loss of the subset with the full loss at new draws; if the error is large, refine it once."""
        for attempt in range(_ATTEMPTS):
            flat = self.draw(beta, seed).draws.flat
            some = flat[np.linspace(0, len(flat) - 1, CHECKED).astype(int)]
            found = self.compression.checked(constrain_rows(self._prior, some), beta)
            if found.error <= ACCEPTED or attempt == _ATTEMPTS - 1:
                self.compression = found
                break
            self.compression = found.refined(beta)
            self._loss, self._drawn, self._near = self.compression.loss, {}, flat
        return self.compression


def _totals(u: Float[Array, " d"], target: Target, counts: Float[Array, "resamples n"]):
    each = target.loss.each(target.prior.constrain(u))
    return each.sum(), counts @ each


def _total_and_coefficients(u: Float[Array, " d"], target: Any):
    coefficients = target.loss.interpolation.coefficients(target.prior.constrain(u))
    return target.loss.total(coefficients), coefficients
