"""Posteriors of very many data sets of one column: every step processes many of them at once."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.parallel import in_order, on_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import (
    CalibrationResult,
    PathCalibration,
    Resampling,
    SurrogateCheck,
    SurrogateTest,
    calibrate_many,
)
from nsmbayes.errors import InputError
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.cells import MANY_IN_LINE
from nsmbayes.methods.line_targets import LineTargets
from nsmbayes.methods.pool import Pool
from nsmbayes.posteriors import GeneralisedPosterior, PosteriorBatch, SampledPosterior
from nsmbayes.posteriors.base import Provenance
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import AdaptiveSampler, Draws, Target, diagnose
from nsmbayes.samplers.compiled import Effort, Sampled, visited_weights
from nsmbayes.samplers.independence import FEW
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights import Weight, Weighting

_MANY = 8  # data sets; for fewer the compilation takes longer than it saves


def data_sets(given: Any) -> list[Any]:
    """Check that a user gave a list of data sets."""
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping) or not (found := list(given)):
        raise InputError(f"`datasets` must be a list of data sets of shape (n, d_x), at least one; got {given!r:.100}.")
    return found


def can_batch(datasets: Sequence[Any], d_x: int, dim: int, sampler: Any, calibration: Any) -> bool:
    """Whether one compiled program can sample and calibrate all data sets."""
    largest = max(np.shape(each)[0] if np.ndim(each) else 0 for each in datasets)
    by_means = isinstance(calibration, PathCalibration) and calibration.reference == "posterior-mean"
    return (
        d_x == 1
        and dim <= FEW
        and len(datasets) >= _MANY
        and largest <= MANY_IN_LINE
        and isinstance(sampler, AdaptiveSampler)
        and (calibration is None or by_means)
    )


def warn_of_outside(x: list[Float[np.ndarray, "_ d_x"]], x_range: Float[np.ndarray, "2 d_x"]) -> None:
    """Warn of observations outside the range of the simulations, once for all data sets."""
    rows, own = np.concatenate(x), np.repeat(np.arange(len(x)), [len(each) for each in x])
    outside = ((rows < x_range[0]) | (rows > x_range[1])).any(axis=1)
    if outside.any():
        warn_user(
            f"{outside.sum()} of {len(rows)} observations lie outside the range of the simulations (data sets "
            f"{checks.shown(np.unique(own[outside]))}): the surrogate extrapolates there.",
        )


@contextmanager
def data_set(number: int) -> Iterator[None]:
    """Add the number of the data set to an `InputError`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Data set {number} of `datasets`: {error}") from None


class Block(NamedTuple):
    """Several data sets with their location and scatter."""

    number: int
    """The number of the first data set."""
    x: list[Float[np.ndarray, "_ 1"]]
    used: list[Float[np.ndarray, "_ 1"]]
    """The observations in the loss: dequantised, and distant ones pulled in."""
    centres: list[LocationScatter]


class Part(NamedTuple):
    """One data set and its posterior."""

    x: Float[np.ndarray, "n 1"]
    used: Float[np.ndarray, "n 1"]
    """The observations in the loss."""
    centre: LocationScatter
    calibration: CalibrationResult | None
    check: SurrogateCheck | None
    arrived: bool
    """Whether the sampler has reached the posterior; otherwise the draws are useless."""
    positions: Float[np.ndarray, "chains draws d"]
    acceptance: Float[np.ndarray, " chains"]
    draws: Float[np.ndarray, "chains draws d"]
    """In the user's space."""
    beta: float


class BatchRecipe(NamedTuple):
    """The settings that the posteriors of many data sets share."""

    prior: UnconstrainedPrior
    pool: Pool
    weight: Weight
    noise_levels: tuple[float, ...]
    effort: Effort
    beta: float | None
    """The learning rate, if the user chose one."""
    calibration: PathCalibration | None
    """The calibration that finds it, if not."""
    test: Callable[[], SurrogateTest | None]
    """Returns the check of the surrogate by held-out simulations."""
    provenance: Provenance
    note: str
    seed: int

    def parts(self, blocks: Iterable[Block]) -> Iterator[list[Part]]:
        """Compute the posteriors block by block; with a GPU, several blocks are in progress at once."""
        return map(self._sampled, blocks) if on_processor() else in_order(self._sampled, blocks)

    @double_precision
    def _sampled(self, block: Block) -> list[Part]:
        """Sample the posteriors of one block, each at its learning rate."""
        seed = self.seed + block.number
        lines = LineTargets.of(
            self.prior, self.weight, self.noise_levels, block.used, block.centres, self.pool, self.effort, seed
        )
        first = self.beta or (1.0 if self.calibration is None else self.calibration.largest)
        betas = np.full(len(block.x), first)
        drawn, arrived = lines.sample(betas)
        calibrations: list[CalibrationResult | None] = [None] * len(betas)
        checks: list[SurrogateCheck | None] = [None] * len(betas)
        if self.calibration is not None:
            calibrations[:] = self._calibrated(lines, drawn)
            betas = np.array([each.beta for each in calibrations if each is not None])
            there, sizes = np.flatnonzero(arrived), np.array(lines.data.sizes)
            moments = self._moments(drawn.only(there), betas[there], first)
            for i, check in zip(there, self._checks(*moments, sizes[there], betas[there]), strict=True):
                if check is not None:
                    checks[i], betas[i] = check._replace(applied=True), betas[i] / check.wider
            if (betas != first).any():
                drawn, again = lines.sample(betas, drawn)
                arrived &= again
        arrived &= lines.are_complete(drawn, betas)
        theta = constrain_rows(self.prior, drawn.positions)
        found = zip(arrived.tolist(), drawn.positions, drawn.acceptance, theta, betas.tolist(), strict=True)
        known = zip(block.x, block.used, block.centres, calibrations, checks, strict=True)
        return [Part(*one, *draws) for one, draws in zip(known, found, strict=True)]

    def collected(self, parts: list[Part], alone: Mapping[int, SampledPosterior]) -> PosteriorBatch:
        """Collect all posteriors in one batch; each is built on first access unless it was built alone."""

        def build(i: int) -> SampledPosterior:
            return alone[i] if i in alone else self._posterior(parts[i])

        draws = [part.draws if part.arrived else alone[i].draws for i, part in enumerate(parts)]
        betas = [part.beta if part.arrived else alone[i].beta for i, part in enumerate(parts)]
        return PosteriorBatch(tuple(draws), np.array(betas), build)

    def _calibrated(self, lines: LineTargets, drawn: Sampled) -> list[CalibrationResult]:
        assert self.calibration is not None
        everything = np.arange(len(lines.losses))
        targets = lines.targets(everything, np.full(len(everything), self.calibration.largest))
        rows = Resampling.of(lines.data, self.weight)
        return calibrate_many(self.calibration, targets, lines.axes, rows, drawn, seed=self.seed)

    def _checks(
        self,
        means: Float[np.ndarray, "k d"],
        covariances: Float[np.ndarray, "k d d"],
        n: Int[np.ndarray, " k"],
        betas: Float[np.ndarray, " k"],
    ) -> list[SurrogateCheck | None]:
        """Check how much the surrogate's error adds to posteriors with these moments."""
        if len(n) == 0 or (test := self.test()) is None:
            return [None] * len(n)
        return list(test.check_many(means, covariances, n, betas[:, None, None] * covariances))

    def _moments(
        self, drawn: Sampled, betas: Float[np.ndarray, " k"], first: float
    ) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d d"]]:
        """Means and covariances: from the draws at the `first` learning rate, at others from all visited parameters."""
        means, covariances = _weighted(constrain_rows(self.prior, drawn.positions))
        other = betas != first
        if other.any():
            visited = drawn.only(other)
            weights = visited_weights(visited, betas[other])
            means[other], covariances[other] = _weighted(constrain_rows(self.prior, visited.visited), weights)
        return means, covariances

    @double_precision
    def _posterior(self, part: Part) -> GeneralisedPosterior:
        setting = NSMSetting.of(self.pool.density, Weighting(self.weight, part.centre), self.noise_levels, whiten=True)
        check, positions = part.check, part.positions
        if check is None:
            [check] = self._checks(*_weighted(part.draws[None]), np.array([len(part.x)]), np.array([part.beta]))
        failures = np.zeros(len(positions), int)
        return GeneralisedPosterior(
            self.provenance,
            Target(self.prior, setting.loss(part.used), jnp.asarray(part.beta)),
            Draws(positions, part.acceptance, failures, *diagnose(positions), note=self.note),
            part.x,
            setting,
            dequantised=part.used,
            calibration=part.calibration,
            surrogate_check=check,
        )


def _weighted(
    theta: Float[np.ndarray, "k *draws d"], weights: Float[np.ndarray, "k m"] | None = None
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d d"]]:
    """Weighted means and covariances; the covariances are regular even if very few draws carry the weight."""
    theta = theta.reshape(len(theta), math.prod(theta.shape[1:-1]), theta.shape[-1])
    weights = np.full(theta.shape[:2], 1 / theta.shape[1]) if weights is None else weights
    means = (weights[:, None] @ theta)[:, 0]
    offsets = theta - means[:, None]
    covariances = (weights[..., None] * offsets).swapaxes(1, 2) @ offsets
    variances = np.einsum("kii->ki", covariances)
    return means, covariances + (1e-9 * variances + 1e-300)[:, None] * np.eye(theta.shape[2])
