"""Posteriors of very many data sets of one column: every step for many of them at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes._internal.parallel import on_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import BatchedProblem, CalibrationResult, SurrogateCheck
from nsmbayes.errors import InputError
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.lines import LineLoss, Whitened, line_losses
from nsmbayes.methods.pool import Pool
from nsmbayes.posteriors import GeneralisedPosterior, PosteriorBatch, SampledPosterior
from nsmbayes.posteriors.base import Provenance
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import Target, diagnose
from nsmbayes.samplers.compiled import Effort, Sampled, Start, reweighted_start, sample_many
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights import Weight, Weighting

_TOGETHER, _TOGETHER_ON_GPU = 128, 512  # data sets that are sampled at once
_ENOUGH = 0.25  # effective share of the draws below which they are drawn again
_WIDER = 1.5  # than what was found is the start of a second attempt
_ATTEMPTS = 2


def together() -> int:
    """How many data sets should be sampled at once."""
    return _TOGETHER if on_processor() else _TOGETHER_ON_GPU


@contextmanager
def data_set(number: int) -> Iterator[None]:
    """Errors about a data set say which one it is."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Data set {number} of `datasets`: {error}") from None


class Lines(NamedTuple):
    """Some data sets of one column, and their losses."""

    prior: UnconstrainedPrior
    losses: list[LineLoss]
    starts: list[Start]
    effort: Effort
    seed: int

    @classmethod
    def of(
        cls,
        prior: UnconstrainedPrior,
        weight: Weight,
        noise_levels: tuple[float, ...],
        x: list[Float[np.ndarray, "_ 1"]],
        centres: list[LocationScatter],
        pool: Pool,
        effort: Effort,
        seed: int,
    ) -> "Lines":
        """With their losses, and with the weighted likelihood of a part of the rows to say where posteriors are."""
        location = np.array([np.asarray(one.location).item() for one in centres])
        data = Whitened.of(x, location, np.array([np.asarray(one.factor).item() for one in centres]))
        starts = pool.starts(x, data.counts(weight), seed, together())
        losses = line_losses(pool.density, weight, noise_levels, data, alike=not on_processor())
        return cls(prior, losses, starts, effort, seed)

    def only(self, some: list[int], starts: list[Start]) -> "Lines":
        """Some of the data sets, with other starts."""
        return self._replace(losses=[self.losses[i] for i in some], starts=starts)

    @double_precision
    def sample(self, betas: Sequence[float]) -> list[Sampled | None]:
        """Draws of every posterior at its learning rate; None where the sampler does not arrive, twice."""
        found: list[Sampled | None] = [None] * len(self.losses)
        begin = list(self.starts)
        for attempt in range(_ATTEMPTS):
            for size in sorted({len(loss.y) for loss in self.losses}):
                missing = [i for i, loss in enumerate(self.losses) if len(loss.y) == size and found[i] is None]
                if not missing:
                    continue
                targets = [Target(self.prior, self.losses[i], np.asarray(float(betas[i]))) for i in missing]
                seeds = [self.seed + 1000 * attempt + i for i in missing]
                drawn = sample_many(targets, [begin[i] for i in missing], seeds, self.effort)
                for i, one in zip(missing, drawn, strict=True):
                    if one.temperature == 1 and one.ess >= _ENOUGH * self.effort.chains * self.effort.draws:
                        found[i] = one
                    else:
                        mean, covariance = reweighted_start(one, float(betas[i]))
                        begin[i] = Start(mean, _WIDER * covariance)
        return found


class Part(NamedTuple):
    """One data set, and what was found of its posterior."""

    x: Float[np.ndarray, "n 1"]
    used: Float[np.ndarray, "n 1"]
    """As the loss has them."""
    centre: LocationScatter
    sampled: Sampled | None = None
    """None where the sampler did not arrive."""
    beta: float = 1.0
    calibration: CalibrationResult | None = None
    check: SurrogateCheck | None = None


class BatchRecipe(NamedTuple):
    """What the posteriors of many data sets have in common."""

    prior: UnconstrainedPrior
    pool: Pool
    weight: Weight
    noise_levels: tuple[float, ...]
    effort: Effort
    beta: float | None
    """The learning rate, if it is given."""
    calibration: Any
    """A `PathCalibration`, if not."""
    checked: Callable[..., tuple[SurrogateCheck | None, float]]
    """What the surrogate's error adds, and a learning rate that allows for it."""
    provenance: Provenance
    note: str
    seed: int

    @double_precision
    def sampled(
        self,
        x: list[Float[np.ndarray, "_ 1"]],
        used: list[Float[np.ndarray, "_ 1"]],
        centres: list[LocationScatter],
        number: int,
    ) -> list[Part]:
        """The posteriors of some data sets, each at its learning rate; `number` is that of the first one."""
        first = self.beta or (1.0 if self.calibration is None else self.calibration.largest)
        lines = Lines.of(
            self.prior, self.weight, self.noise_levels, used, centres, self.pool, self.effort, self.seed + number
        )
        drawn = lines.sample([first] * len(x))
        parts = [Part(*each, first) for each in zip(x, used, centres, drawn, strict=True)]
        if self.calibration is None:
            return parts
        parts = [part if part.sampled is None else self._calibrated(part) for part in parts]
        again = [i for i, part in enumerate(parts) if part.sampled is not None and part.beta != first]
        if again:
            starts = [reweighted_start(one, parts[i].beta) for i in again if (one := drawn[i]) is not None]
            for i, one in zip(again, lines.only(again, starts).sample([parts[i].beta for i in again]), strict=True):
                parts[i] = parts[i]._replace(sampled=one)
        return parts

    def collected(self, parts: list[Part], alone: Mapping[int, SampledPosterior]) -> PosteriorBatch:
        """Posteriors that are made when they are asked for, but for those that were built alone."""

        def build(i: int) -> SampledPosterior:
            return alone[i] if i in alone else self._posterior(parts[i])

        there = [part.sampled.positions for part in parts if part.sampled is not None]
        constrained = iter(constrain_rows(self.prior, np.stack(there)) if there else ())
        draws = [alone[i].draws if part.sampled is None else next(constrained) for i, part in enumerate(parts)]
        betas = [alone[i].beta if part.sampled is None else part.beta for i, part in enumerate(parts)]
        return PosteriorBatch(tuple(draws), np.array(betas), build)

    def _setting(self, part: Part) -> NSMSetting:
        weighting = Weighting(self.weight, part.centre)
        return NSMSetting.of(self.pool.density, weighting, self.noise_levels, whiten=True)

    def _problem(self, part: Part) -> BatchedProblem:
        assert part.sampled is not None
        return BatchedProblem(self.prior, self._setting(part).loss(part.used), len(part.x), part.sampled, part.beta)

    def _calibrated(self, part: Part) -> Part:
        problem = self._problem(part)
        result = self.calibration.calibrate(problem, seed=self.seed)
        check, beta = self.checked(problem, self.prior, result.beta, self.seed, lower=1.0)
        return part._replace(beta=beta, calibration=result, check=check)

    @double_precision
    def _posterior(self, part: Part) -> GeneralisedPosterior:
        problem = self._problem(part)
        target, draws = problem.draw(part.beta, self.seed)
        check = part.check
        if check is None:
            check, _ = self.checked(problem, self.prior, part.beta, self.seed, lower=None)
        r_hat, ess_bulk, ess_tail = diagnose(draws.positions)
        return GeneralisedPosterior(
            self.provenance,
            target,
            draws._replace(r_hat=r_hat, ess_bulk=ess_bulk, ess_tail=ess_tail, note=self.note, visited=None),
            part.x,
            self._setting(part),
            dequantised=part.used,
            calibration=part.calibration,
            surrogate_check=check,
        )
