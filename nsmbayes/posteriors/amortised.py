"""Posteriors from statistics of the data: updates with more or fewer observations, another prior or learning rate."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.processor import one_blas_thread
from nsmbayes._internal.random import dequantised
from nsmbayes.calibration import CalibrationResult, SurrogateCheck
from nsmbayes.errors import InputError
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.corrected import corrected
from nsmbayes.losses.interpolated import InterpolatedLoss
from nsmbayes.losses.pieces import Piece
from nsmbayes.posteriors.base import Posterior, Provenance
from nsmbayes.posteriors.generalised import GeneralisedPosterior
from nsmbayes.posteriors.influence import Influence, influence_by_reweighting
from nsmbayes.posteriors.kept import KeptStatistics
from nsmbayes.priors import UnconstrainedPrior, another_prior, constrain_rows, unconstrain_rows
from nsmbayes.samplers import Draws, Sampler, Summary, Target
from nsmbayes.samplers.summaries import ACCEPTED, around
from nsmbayes.suspects import Suspects

NOT_ASKED = "Weights are by distance alone: there was no search for excess observations."
"""Note of posteriors that were built without the search for excess observations, though their method has it."""
_NEAR = 200  # draws that a sampler starts from
_MORE = 2.0  # location and scatter should be refitted at this multiple of the observations they were fitted to
_ROW_LOSSES, _DRAWS = 20_000_000, (50, 500)  # for the influence: maximum number of losses; fewest and most draws


class Sampling(NamedTuple):
    """Target, draws and statistics of a sampled posterior."""

    target: Target
    draws: Draws
    summary: Summary
    """Statistics of the observations; with new references if the error of the first ones was too large."""


class Later(NamedTuple):
    """Inputs for sampling on demand: the statistics, and draws of a similar posterior."""

    summary: Summary
    near: Float[np.ndarray, "k d"]
    seed: int


class _Drawn:
    """An attribute that needs draws: the first access to such an attribute samples the posterior."""

    def __set_name__(self, owner: type, name: str):
        self._name = name

    def __get__(self, posterior: Any, owner: type | None = None) -> Any:
        if posterior is None:
            return self
        posterior._draw()
        return vars(posterior)[self._name]


class AmortisedPosterior(GeneralisedPosterior):
    """Draws from the NSM-Bayes posterior, computed from statistics of the observations.

    Built by `NSMBayesAmortised.build_posterior`. It is immutable: `update`, `remove`, `with_beta` and `with_prior`
    return new posteriors, from sums and a few thousand evaluations that cost the same for any number of observations.
    `update` only adds to the sums; sampling happens when an attribute that needs draws is first used.
    """

    def __init__(
        self,
        provenance: Provenance,
        sampling: Sampling | Later,
        x: Float[np.ndarray, "n d_x"],
        setting: NSMSetting,
        *,
        prior: UnconstrainedPrior,
        beta: float,
        sampler: Sampler,
        dequantised: Float[np.ndarray, "n d_x"],
        grid_steps: tuple[float, ...] | None = None,
        first: int | None = None,
        calibration: CalibrationResult | None = None,
        suspects: Suspects | None = None,
        by_distance: bool = False,
        surrogate_check: SurrogateCheck | None = None,
    ):
        Posterior.__init__(self, provenance, beta, calibration, surrogate_check)
        self._sampling, self._x, self.setting, self._support = sampling, x, setting, prior
        self.suspects, self.dequantised, self.compression = suspects, dequantised, None
        self._sampler, self._grid_steps = sampler, grid_steps
        self._first, self._by_distance = first or len(x), by_distance

    draws: Any = _Drawn()
    result: Any = _Drawn()
    mean: Any = _Drawn()
    covariance: Any = _Drawn()
    target: Any = _Drawn()
    summarised: Any = _Drawn()
    _empirical: Any = _Drawn()

    def _draw(self) -> None:
        suspects, known = self.suspects, self._sampling
        if isinstance(known, Later):
            summary, near, seed = known
            check = self.surrogate_check
            known = sampled(summary, self.support, self.setting, self._sampler, near, self.beta, seed, check)
        target, result, summary = known
        said = [result.note, "" if suspects is None else suspects.describe(), NOT_ASKED if self._by_distance else ""]
        kept = result._replace(note="\n".join(filter(None, [*said, summary.describe()])), visited=None)
        options: dict[str, Any] = {"dequantised": self.dequantised, "calibration": self.calibration}
        options["surrogate_check"] = self.surrogate_check
        super().__init__(self.provenance, target, kept, self._x, self.setting, **options)
        self.suspects, self.summarised, self._sampling = suspects, summary, known._replace(draws=kept)

    setting: NSMSetting

    @property
    def _sums(self) -> Summary:
        """The statistics, available before and after sampling."""
        return self._sampling.summary

    @property
    def statistics(self) -> KeptStatistics:
        """The sums over the observations that determine the posterior; they can be saved without the observations."""
        check = self.surrogate_check
        return KeptStatistics.of(self._sums.loss, self.n, self.beta, None if check is None else check.total)

    @property
    def interpolation_error(self) -> float:
        """Error of the log density: the standard deviation, over draws, of its difference from that of NSM-Bayes."""
        return self.summarised.error

    def update(self, x_new: Any, *, seed: int = 0) -> "AmortisedPosterior":
        """Return the posterior with additional observations, weighted by the location and scatter of the first ones.

        Nothing is recomputed for the earlier observations, and sampling happens on demand. `renewal` says when to
        rebuild the posterior.
        """
        x_new = self.points(x_new, "x_new", note=True)
        number = len(self._sums.pieces)
        noisy = dequantised(x_new, self._grid_steps, number, 1)
        piece = Piece.of(self.setting, noisy, np.ones(len(x_new)), seed=number << 32)
        return self._sampled(
            self._sums.extended(piece),
            seed,
            wait=True,
            x=np.concatenate([self.x, x_new]),
            dequantised=np.concatenate([self.dequantised, noisy]),
            suspects=None if self.suspects is None else self.suspects.extended(len(x_new)),
        )

    def remove(self, rows: Any, *, seed: int = 0) -> "AmortisedPosterior":
        """Return the posterior without some observations; location and scatter are unchanged.

        Args:
            rows: their numbers, or a boolean mask of all observations.
            seed: for the sampler.
        """
        given = np.atleast_1d(np.asarray(rows))
        rows = np.unique(np.flatnonzero(given) if given.dtype == bool and given.shape == (self.n,) else given)
        if rows.size == 0 or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= self.n:
            raise InputError(
                f"`rows` must be at least one number of an observation, from 0 to {self.n - 1}, or a mask of all "
                f"{self.n}; got {given!r:.100}."
            )
        kept = np.ones(self.n, bool)
        kept[rows] = False
        if kept.sum() < 2:
            raise InputError("`rows` must leave at least two observations.")
        suspects = self.suspects
        if suspects is not None:
            suspects = suspects._replace(factor=type(suspects.factor)(*(each[kept] for each in suspects.factor)))
        noisy = self.dequantised[kept]
        multiples = np.ones(len(noisy)) if suspects is None else suspects.factor.values
        piece = Piece.of(self.setting, noisy, multiples, seed=0)
        summary = around(self._sums._replace(pieces=(piece,)), self.support, self.setting, self._near(), seed)
        return self._sampled(summary, seed, x=self.x[kept], dequantised=noisy, suspects=suspects)

    def with_beta(
        self, beta: float, *, seed: int = 0, calibration: CalibrationResult | None = None
    ) -> "AmortisedPosterior":
        """Return the posterior for another learning rate; `calibration` is stored as the origin of `beta`."""
        return self._sampled(self.summarised, seed, beta=checks.positive(beta, "beta"), calibration=calibration)

    def with_prior(self, prior: Any, *, seed: int = 0) -> "AmortisedPosterior":
        """Return the posterior for another prior over the same parameters, with the same statistics and beta."""
        return self._sampled(self.summarised, seed, prior=another_prior(prior, self.parameter_names))

    @property
    def renewal(self) -> str:
        """Reason to rebuild the posterior from all observations; an empty string if there is none."""
        if self.n < _MORE * self._first:
            return ""
        return (
            f"Location and scatter are those of the first {self._first:,} of {self.n:,} observations: build the "
            "posterior anew from all of them."
        )

    def _near(self) -> Float[np.ndarray, "k d"]:
        """Some draws of the posterior, or the starting draws if it is not sampled yet."""
        return self._sampling.near if isinstance(self._sampling, Later) else self.thinned(_NEAR)

    def _sampled(
        self,
        summary: Summary,
        seed: int,
        *,
        prior: UnconstrainedPrior | None = None,
        beta: float | None = None,
        wait: bool = False,
        **changes: Any,
    ) -> "AmortisedPosterior":
        """Return the posterior for other statistics, prior or learning rate; its chains start near the present draws.

        With `wait` it is sampled on demand, otherwise immediately.
        """
        seed = checks.integer(seed, "seed")
        support = self.support if prior is None else prior
        rate, check = self.beta if beta is None else beta, self.surrogate_check
        if check is not None:
            check = check.for_more(summary.n)._replace(applied=check.applied and beta is None)

        near = self._near()
        if prior is not None:
            near = unconstrain_rows(support, constrain_rows(self.support, near))
        sampling: Sampling | Later = Later(summary, near, seed)
        if not wait:
            sampling = sampled(summary, support, self.setting, self._sampler, near, rate, seed, check)
        fields: dict[str, Any] = {
            "x": self.x,
            "dequantised": self.dequantised,
            "suspects": self.suspects,
            "calibration": self.calibration if beta is None else None,
            "surrogate_check": check,
        }
        fields |= changes
        return AmortisedPosterior(
            self.provenance,
            sampling,
            fields.pop("x"),
            self.setting,
            prior=support,
            beta=rate,
            sampler=self._sampler,
            grid_steps=self._grid_steps,
            first=self._first,
            by_distance=self._by_distance,
            **fields,
        )

    @double_precision
    def leave_one_out(self) -> Influence:
        """KL(posterior || posterior without observation i) for every i, by reweighting the draws."""
        least, most = _DRAWS
        return self._influence_of_all(max(least, min(most, _ROW_LOSSES // self.n)))

    def _influence_of_all(self, draws: int) -> Influence:
        theta, start = constrain_rows(self.target.prior, self.thinned(draws)), 0
        kl, reliable = np.empty(self.n), np.empty(self.n, bool)
        for piece in self.summarised.pieces:
            for losses, rows in piece.each(self._loss, theta):
                kl[start + rows], reliable[start + rows] = influence_by_reweighting(self.beta * losses)
            start += piece.n
        return Influence(kl, reliable)

    @property
    def _loss(self) -> InterpolatedLoss:
        return self.summarised.loss

    @double_precision
    def row_losses(
        self, positions: Float[np.ndarray, "draws d"], rows: Int[np.ndarray, " k"]
    ) -> Float[np.ndarray, "draws k"]:
        """The losses of some observations at unconstrained parameters."""
        return self._all_losses(constrain_rows(self.target.prior, positions))[:, rows]

    @double_precision
    def losses(self, theta: Any) -> Float[np.ndarray, " n"]:
        """The loss of each observation at one theta."""
        return self._all_losses(checks.vector(theta, "theta", length=self.dim)[None])[0]

    def _all_losses(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k n"]:
        found, start = np.empty((len(theta), self.n)), 0
        for piece in self.summarised.pieces:
            for losses, rows in piece.each(self._loss, theta):
                found[:, start + rows] = losses
            start += piece.n
        return found

    def noise_error(self) -> float:
        """Error of the log density; the same as `interpolation_error`."""
        return self.interpolation_error

    def _notes(self) -> list[str]:
        said = super()._notes()
        if self.suspects is not None and self.n > self._first:
            said.append(f"Observations after the first {self._first:,} were added later and not checked for excess.")
        return said + ([self.renewal] if self.renewal else [])


@double_precision
@one_blas_thread()
def sampled(
    summary: Summary,
    prior: UnconstrainedPrior,
    setting: NSMSetting,
    sampler: Sampler,
    near: Float[np.ndarray, "k d"],
    beta: float,
    seed: int,
    check: SurrogateCheck | None,
) -> Sampling:
    """Sample the posterior and measure the error of the statistics there; retry with new references if it is too large.

    The loss is corrected by the correction of `check`, if there is one.
    """
    correction = None if check is None else check.total

    def draw(summary: Summary, near: np.ndarray) -> Sampling:
        target = Target(prior, corrected(summary.loss, correction), jnp.asarray(beta))
        result = sampler.sample_near(target, near, seed=seed)
        return Sampling(target, result, summary.checked(constrain_rows(prior, result.flat), beta))

    found = draw(summary, near)
    if found.summary.error > ACCEPTED:
        near = found.draws.flat[:: max(1, len(found.draws.flat) // _NEAR)]
        found = draw(around(summary, prior, setting, near, seed), near)
    return found
