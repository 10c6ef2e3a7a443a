"""Calibration problems of posteriors that are sampled, whose draws are reweighted to bootstrap resamples."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import map_rows
from nsmbayes.calibration.base import CalibrationProblem
from nsmbayes.losses import Loss
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers import Draws, Sampler, Target, each_loss


class SampledDraws(NamedTuple):
    """Draws, and the target that they were drawn from."""

    target: Target
    draws: Draws


class TotalLosses(NamedTuple):
    """Total losses at many parameters: of the full data and of each resample."""

    full: Float[np.ndarray, " draws"]
    resampled: Float[np.ndarray, "resamples draws"]


class SampledProblem(CalibrationProblem):
    """The posterior of a loss by a sampler. Draws are kept, so that asking for the same ones again costs nothing."""

    def __init__(self, prior: UnconstrainedPrior, loss: Loss, n: int, sampler: Sampler):
        self.n = n
        self._prior, self._loss, self._sampler = prior, loss, sampler
        self._drawn: dict[tuple[float, int], SampledDraws] = {}

    def draw(self, beta: float, seed: int) -> SampledDraws:
        """Draws of the posterior of the full data."""
        if (beta, seed) not in self._drawn:
            with jax.enable_x64(True):
                target = Target(self._prior, self._loss, jnp.asarray(beta))
            self._drawn[beta, seed] = SampledDraws(target, self._sampler.sample(target, seed=seed))
        return self._drawn[beta, seed]

    def each_loss(self, target: Target, draws: Draws) -> Float[np.ndarray, "draws n"]:
        """The loss of each observation at the draws."""
        return each_loss(target, draws.flat)

    def total_losses(
        self, target: Target, positions: Float[np.ndarray, "draws d"], counts: Int[np.ndarray, "resamples n"]
    ) -> TotalLosses:
        """The losses of resamples at unconstrained parameters, without a table of every observation's.

        The weights of the observations stay those of the full data.
        """
        full, resampled = map_rows(_totals, positions, target, counts.astype(float))
        return TotalLosses(full, resampled.T)


def _totals(u: Float[Array, " d"], target: Target, counts: Float[Array, "resamples n"]):
    each = target.loss.each(target.prior.constrain(u))
    return each.sum(), counts @ each
