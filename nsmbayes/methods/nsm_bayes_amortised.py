"""NSM-Bayes-amortised: the NSM-Bayes posterior from a few small matrices, for any number of observations."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from tqdm.auto import tqdm

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.parallel import by_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.processor import one_blas_thread
from nsmbayes._internal.waiting import waiting
from nsmbayes.calibration import InterpolatedProblem, PathCalibration
from nsmbayes.errors import InputError
from nsmbayes.losses import NLELoss, NSMSetting
from nsmbayes.losses.pieces import Piece
from nsmbayes.methods.batches import BatchRecipe, Block, Part, can_batch, data_set, data_sets, warn_of_outside
from nsmbayes.methods.likelihood import observed
from nsmbayes.methods.line_targets import together
from nsmbayes.methods.nsm_bayes import NSMBayes
from nsmbayes.methods.pool import Pool
from nsmbayes.posteriors import (
    AmortisedPosterior,
    KeptStatistics,
    PosteriorBatch,
    StatisticsPosterior,
    from_statistics,
)
from nsmbayes.posteriors.amortised import NOT_ASKED, Sampling, sampled
from nsmbayes.priors import UnconstrainedPrior, another_prior, constrain_rows
from nsmbayes.samplers import Sampler, Target, rough_draws, summarise
from nsmbayes.samplers.compiled import Effort
from nsmbayes.samplers.summaries import ACCEPTED
from nsmbayes.scatter import LocationScatter, fit_many
from nsmbayes.surrogates import MDN, Density, MixtureDensity, SbiMDN
from nsmbayes.suspects import find_suspects, wider_for
from nsmbayes.weights import Weight, overall_many

_PILOT, _DRAWS = 1000, 60  # number of observations of a first rough fit, and number of draws from it


class NSMBayesAmortised(NSMBayes):
    """The posterior of `NSMBayes` from statistics of the data, amortised over data, prior, weight and learning rate.

    The surrogate, the weight and the loss are those of `NSMBayes`. The score of the surrogate is interpolated between
    its values at a few dozen reference parameters around the posterior. A data set is then summarised by a few small
    matrices, sums over its observations (`losses.interpolated`). The density of theta costs the same for any number of
    observations, `update` adds to the sums, and another prior or learning rate needs nothing else. The error of the log
    density is measured for every posterior and reported in its summary. The surrogate must be a mixture density
    network, and there must be noise levels.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        options: those of `NSMBayes`.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gaussian")
        >>> method = nsm.NSMBayesAmortised(task.prior)
        >>> method.amortised
        'fully'
    """

    name, label = "nsm-bayes-amortised", "NSM-Bayes-amortised"
    amortised = "fully"

    def __init__(self, prior: Any, **options: Any):
        super().__init__(prior, **options)
        if self.noise_levels == (0.0,):
            raise InputError(
                "`noise_levels` must be above 0 for NSMBayesAmortised: without noise, scores change too fast between "
                "parameters to be interpolated. Leave them out, or take NSMBayes."
            )
        if not self.whiten:
            raise InputError("`whiten` must be True for NSMBayesAmortised. Leave it out, or take NSMBayes.")
        if not isinstance(self.surrogate, MDN | SbiMDN):
            raise InputError(
                f"`surrogate` must be a mixture density network for NSMBayesAmortised; got a "
                f"{type(self.surrogate).__name__}. Leave it out, or take NSMBayes."
            )

    def build_posterior(
        self,
        x: Any,
        *,
        prior: Any = None,
        beta: float | None = None,
        weight: Weight | None = None,
        missing: str | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> AmortisedPosterior:
        """Build the posterior given observations `x` of shape (n, d_x), without further simulation or training.

        Args:
            x: the observations, outliers included.
            prior: replaces the method's prior.
            beta: the learning rate; by default it is calibrated.
            weight: replaces the method's weight.
            missing: not supported by this method; see `NSMBayes`.
            seed: for the sampler and the calibration.
            progress: whether to print the current step on a terminal once it has taken two seconds.
        """
        if missing is not None:
            raise InputError(
                "`missing` must be left out for NSMBayesAmortised. Missing cells are integrated out by NSMBayes, which "
                "can use the same network: NSMBayes(prior).adopt(method)."
            )
        with waiting("posterior", progress=progress):
            return self._build(x, prior=prior, beta=beta, weight=weight, seed=seed, excess=True)

    def build_posteriors(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        datasets: Sequence[Any],
        *,
        prior: Any = None,
        beta: float | None = None,
        weight: Weight | None = None,
        excess: bool | None = None,
        draws: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> PosteriorBatch:
        """Build the posteriors of many data sets (n, d_x); each may have a different n.

        Args:
            datasets: a list of data sets, or an array (k, n, d_x).
            prior: replaces the method's prior.
            beta: the learning rate; by default it is calibrated for each data set.
            weight: replaces the method's weight.
            excess: whether to search each data set for excess observations, which takes most of the time. By default
                True, except for data sets that are sampled together: their posteriors say that there was no search.
            draws: draws of each chain; by default those of the method's sampler.
            seed: for the sampler and the calibration.
            progress: whether to show a progress bar.

        Eight or more data sets of one column are sampled together by one compiled program, and `batch[i]` is a
        posterior like that of `NSMBayes`, but not corrected for the surrogate's error. Other data sets, and those
        for which the joint sampler fails, are built one by one.
        """
        if excess is not None:
            checks.flag(excess, "excess")
        datasets = data_sets(datasets)
        sampler = self.sampler if draws is None else dataclasses.replace(self.sampler, draws=draws)
        options: dict[str, Any] = {"prior": prior, "beta": beta, "weight": weight, "seed": seed}
        with tqdm(total=len(datasets), desc="posteriors", disable=not progress) as bar:
            if not excess and can_batch(datasets, self.d_x, self.dim, self.sampler, self.calibration):
                return self._batch(datasets, options, sampler, bar)
            asked = excess is not False
            posteriors = []
            for number, each in enumerate(datasets):
                with data_set(number):
                    posteriors.append(self._build(each, **options, excess=asked, sampler=sampler))
                bar.update()
        return PosteriorBatch.of(posteriors)

    def _batch(self, datasets: Sequence[Any], options: dict[str, Any], sampler: Sampler, bar: Any) -> PosteriorBatch:
        beta, seed = checks.optional_positive(options["beta"], "beta"), checks.integer(options["seed"], "seed")
        prior, weight = self._support(options["prior"]), self._weight(np.empty((1, 1)), options["weight"])
        calibration = cast(PathCalibration | None, self.calibration if beta is None else None)
        recipe = BatchRecipe(
            prior,
            Pool.of(prior, self._mixture, seed),
            weight,
            self.noise_levels,
            Effort(sampler.chains, sampler.draws, offers=calibration is not None),
            beta,
            calibration,
            self.surrogate_test,
            self._provenance(),
            NOT_ASKED if self.excess is not None else "",
            seed,
        )
        size = together(len(datasets))
        starts = range(0, len(datasets), size)
        blocks = (self._block(datasets[start : start + size], start, weight, seed) for start in starts)
        parts: list[Part] = []
        for block in recipe.parts(blocks):
            parts += block
            bar.update(len(block))
        warn_of_outside([part.x for part in parts], self.x_range)
        left = {i: part.x for i, part in enumerate(parts) if not part.arrived}
        with by_processor():
            alone = {i: self._build(x, **options, excess=False, sampler=sampler) for i, x in left.items()}
        return recipe.collected(parts, alone)

    def _block(self, datasets: Sequence[Any], number: int, weight: Weight, seed: int) -> Block:
        """Convert some data sets of one column to arrays; `number` is the number of the first data set."""
        names, d_x = self.x_names, self.d_x  # read once: attribute access on a method has an overhead
        x = []
        for i, each in enumerate(datasets, number):
            with data_set(i):
                x.append(observed(each, names, d_x))
        used = x if self.grid_steps is None else [self._dequantise(each, seed, 1) for each in x]
        if weight.decays:
            ends = np.cumsum([len(each) for each in used])
            used = np.split(self._reined_in(np.concatenate(used)), ends[:-1])
        return Block(number, x, used, self._centres(used, number))

    @double_precision
    def _centres(self, x: list[Float[np.ndarray, "_ 1"]], number: int) -> list[LocationScatter]:
        """Location and scatter of data sets of one column; `number` is the number of the first data set."""
        estimator = "mcd" if self.scatter == "guided" else self.scatter
        centres = [None] * len(x) if self.grid_steps is not None else fit_many(x, estimator=estimator)
        found = []
        for i, (each, centre) in enumerate(zip(x, centres, strict=True), number):
            with data_set(i):
                found.append(self._location_scatter(each) if centre is None else centre)
        return found

    def posterior_from(
        self, statistics: KeptStatistics, *, prior: Any = None, beta: float | None = None, seed: int = 0
    ) -> StatisticsPosterior:
        """Build a posterior from `posterior.statistics` of an earlier one, without the observations.

        By default the learning rate is that of the earlier posterior. Results that need the observations are not
        available: their weights, their influence, a certificate.
        """
        checks.instance(statistics, "statistics", KeptStatistics, "those of a posterior: posterior.statistics")
        rate = statistics.beta if beta is None else checks.positive(beta, "beta")
        return from_statistics(
            statistics,
            self._mixture,
            self._support(prior),
            self.sampler,
            self._provenance(),
            beta=rate,
            seed=checks.integer(seed, "seed"),
        )

    def stream(self, batches: Iterable[Any], *, seed: int = 0, **options: Any) -> Iterator[AmortisedPosterior]:
        """Yield the posterior after every batch of observations: the first by `build_posterior`, the next by `update`.

        The posterior is rebuilt once there are twice as many observations as location and scatter were fitted to.
        """
        posterior = None
        for batch in batches:
            if posterior is None:
                posterior = self.build_posterior(batch, seed=seed, **options)
            else:
                posterior = posterior.update(batch, seed=seed)
                if posterior.renewal:
                    posterior = self.build_posterior(posterior.x, seed=seed, **options)
            yield posterior

    @one_blas_thread()
    def _build(
        self,
        x: Any,
        *,
        prior: Any,
        beta: float | None,
        weight: Weight | None,
        seed: int,
        excess: bool,
        sampler: Sampler | None = None,
    ) -> AmortisedPosterior:
        sampler = self.sampler if sampler is None else sampler
        x, seed = self._observations(x), checks.integer(seed, "seed")
        support = self._support(prior)
        dequantised = self._dequantise(x, seed, 1)
        chosen_weight = self._weight(x, weight)
        if chosen_weight.decays:
            dequantised = self._reined_in(dequantised)
        suspects = None
        if excess and self.excess is not None:
            suspects = find_suspects(self.excess, support, self._mixture, dequantised, self._location_scatter, seed)
        setting = self.setting(dequantised, weight, suspects)
        multiples = np.ones(len(x)) if suspects is None else suspects.factor.values
        near = self._pilot(support, setting, dequantised, seed) if suspects is None else suspects.near
        rate = 1.0 if beta is None else checks.positive(beta, "beta")
        piece = Piece.of(setting, dequantised, multiples, seed)
        summary, near = summarise(support, setting, piece, near, beta=rate, seed=seed)
        problem, result = InterpolatedProblem(support, summary.loss, piece, sampler, near), None
        if beta is None and self.calibration is not None:
            result = self.calibration.calibrate(problem, seed=seed)
            rate = result.beta
        test = self._test_for(setting, dequantised, multiples)
        lower = None if result is None else wider_for(suspects)
        check, rate = self._checked(problem, support, rate, seed, lower=lower, test=test)
        target, draws = problem.draw(rate, seed)
        sampling = Sampling(target, draws, summary.checked(constrain_rows(support, draws.flat), rate))
        if sampling.summary.error > ACCEPTED:
            sampling = sampled(summary, support, setting, sampler, draws.flat, rate, seed, check)
        posterior = AmortisedPosterior(
            self._provenance(),
            sampling,
            x,
            setting,
            prior=support,
            beta=rate,
            sampler=sampler,
            dequantised=dequantised,
            grid_steps=self.grid_steps,
            calibration=result,
            suspects=suspects,
            by_distance=self.excess is not None and suspects is None,
            surrogate_check=check,
        )
        self._warn_of_chains(posterior)
        return posterior

    def _support(self, prior: Any) -> UnconstrainedPrior:
        return self.support if prior is None else another_prior(prior, self.parameter_names)

    @property
    def _mixture(self) -> MixtureDensity:
        density = self.density
        if not isinstance(density, MixtureDensity):
            raise InputError(
                f"NSMBayesAmortised needs a Gaussian mixture, and its surrogate is a {type(density).__name__}: leave "
                "`surrogate` out, or take NSMBayes."
            )
        return density

    @double_precision
    def _pilot(
        self, prior: UnconstrainedPrior, setting: NSMSetting, x: Float[np.ndarray, "n d_x"], seed: int
    ) -> Float[np.ndarray, "k d"]:
        """Rough draws from a weighted likelihood of some of the observations, which locate the posterior."""
        some = x[np.random.default_rng([seed, len(x)]).permutation(len(x))[:_PILOT]]
        weight, centre = setting.weighting
        counts = np.asarray(overall_many(weight, centre, jnp.asarray(some))) * setting.weighting.at(some) ** 2
        loss = NLELoss(self._mixture, jnp.asarray(some), jnp.asarray(counts))
        return rough_draws(Target(prior, loss, jnp.asarray(1.0)), None, count=_DRAWS, seed=seed)

    def _warn_of_chains(self, posterior: AmortisedPosterior) -> None:
        if not posterior.converged:
            warn_user(
                f"The chains of the {self.label} posterior have not converged (R-hat "
                f"{posterior.result.r_hat.max():.2f}, ESS {posterior.result.ess_bulk.min():.0f}): it may have several "
                "modes, see `modes()`. Raise `warmup`, `draws` or `chains`.",
            )

    def _check_noise(self, density: Density) -> None:
        super()._check_noise(density)
        if not isinstance(density, MixtureDensity):
            raise InputError(
                f"NSMBayesAmortised needs a Gaussian mixture; got a {type(density).__name__}. Take NSMBayes for flows."
            )
