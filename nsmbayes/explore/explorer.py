"""A posterior that answers at once while its data and choices are moved, and is built again when they rest."""

import dataclasses
import functools
import warnings
from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import dequantised
from nsmbayes.errors import InputError
from nsmbayes.explore.answers import Answer
from nsmbayes.explore.choices import Choices, zeta_of
from nsmbayes.explore.following import LikelihoodAnswer
from nsmbayes.posteriors import AmortisedPosterior, ConjugatePosterior
from nsmbayes.priors import GaussianPrior, UnconstrainedPrior, as_gaussian, unconstrained
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights import Weight, Weighting

NLE, TRIMMED = "NLE", "NLE, trimmed"
P = TypeVar("P", ConjugatePosterior, AmortisedPosterior)


class View(NamedTuple):
    """All that the page draws."""

    x: Float[np.ndarray, "n d_x"]
    weights: Float[np.ndarray, " n"]
    weighting: Weighting
    """How rows elsewhere would be weighted by their distance."""
    kept: Bool[np.ndarray, " n"]
    """Which rows the trimmed comparison has."""
    answers: dict[str, Answer | None]
    """By label, the posterior of the model's own method first; None for one that could not be found."""
    prior: Answer
    notes: tuple[str, ...]
    """How what is shown was computed."""


class Explorer(ABC, Generic[P]):
    """One data set, one posterior at rest, and a fast way to what lies near it.

    While something moves, location, scatter and factors by number are those of the posterior at rest; a row that moves
    counts by its distance alone. `rebuilt` fits all of them again.
    """

    def __init__(
        self,
        method: Any,
        posterior: P,
        choices: Choices,
        *,
        seed: int,
        said: tuple[str, ...] = (),
        likelihoods: dict[str, LikelihoodAnswer] | None = None,
    ):
        self.method, self.posterior, self.choices, self.seed, self.said = method, posterior, choices, seed, said
        self._supports: dict[tuple[tuple[float, ...], ...], UnconstrainedPrior] = {}
        density = posterior.density
        if likelihoods is None:
            likelihoods = {} if density is None else {n: LikelihoodAnswer(density, seed) for n in (NLE, TRIMMED)}
        self._likelihoods = likelihoods

    @classmethod
    def started(cls, method: Any, x: Any, *, beta: float | None, seed: int) -> "Explorer[P]":
        """From a trained method and data: the learning rate is given, or calibrated once."""
        posterior, said = _noting(lambda: method.build_posterior(x, beta=beta, seed=seed))
        ones = (1.0,) * posterior.dim
        choices = Choices(
            beta=posterior.beta, zeta=zeta_of(method.weight), shift=(0.0,) * len(ones), width=ones, trimmed=0.0
        )
        return cls(method, posterior, choices, seed=seed, said=said)

    def rebuilt(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> "Explorer[P]":
        """With everything fitted again to data and choices; the learning rate is the chosen one."""
        posterior, said = _noting(lambda: self._build(x, choices))
        return type(self)(self.method, posterior, choices, seed=self.seed, said=said, likelihoods=self._likelihoods)

    @property
    def comparisons(self) -> tuple[str, ...]:
        """The answers that are shown beside that of the model's own method: none, if the model has no density."""
        return tuple(self._likelihoods)

    @property
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations at rest."""
        return self.posterior.x

    @functools.cached_property
    def own_prior(self) -> GaussianPrior | None:
        """The model's prior, if it is Gaussian: others cannot be moved by sliders."""
        try:
            return as_gaussian(self.method.prior)
        except InputError:
            return None

    @double_precision
    def view(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> View:
        """What the page shows for data of which some rows have moved, and other choices."""
        x = np.asarray(x, float)
        rows = np.flatnonzero((x != self.x).any(axis=1))
        noisy = self.posterior.noisy_x.copy()
        noisy[rows] = self._dequantised(x)[rows]
        multiples = self.multiples.copy()
        multiples[rows] = 1.0
        weighting = Weighting(choices.live_weight(self._weight), self._centre)
        kept = self._kept(x, choices.trimmed)
        own, notes = self._own(noisy, multiples, rows, choices)
        answers: dict[str, Answer | None] = {self.posterior.label: own}
        for name, likelihood in self._likelihoods.items():
            if name == NLE or not kept.all():
                answers[name] = likelihood.of(self._support(choices), noisy, np.ones(len(x)) if name == NLE else kept)
        weights = weighting.at(x) * multiples
        return View(x, weights, weighting, kept, answers, self._prior_of(choices), (*notes, *self.said))

    def warm(self) -> None:
        """Compute once what is computed while something moves, so that it is compiled before somebody waits for it."""
        x = self.x.copy()
        x[0] += x.std(axis=0)
        for row, trimmed in ((0, 0.0), (1, 0.2)):
            x[row] = x[row] + 0.1 * x.std(axis=0)
            self.view(x, dataclasses.replace(self.choices, trimmed=trimmed))
        assert self.posterior.certificate is not None  # kept for the page

    @abstractmethod
    def _build(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> P:
        """The posterior, with everything fitted again."""

    @abstractmethod
    def _own(
        self,
        noisy: Float[np.ndarray, "n d_x"],
        multiples: Float[np.ndarray, " n"],
        rows: Int[np.ndarray, " k"],
        choices: Choices,
    ) -> tuple[Answer | None, tuple[str, ...]]:
        """The answer of the model's own method with some rows changed, and how it was computed."""

    @property
    def multiples(self) -> Float[np.ndarray, " n"]:
        """What each row counts by the number of those like it."""
        factor = self.posterior.factor_by_number()
        return np.ones(self.posterior.n) if factor is None else np.asarray(factor.values)

    @property
    def _centre(self) -> LocationScatter:
        return self.posterior.weighting.centre

    @property
    def _weight(self) -> Weight:
        return self.posterior.weighting.weight

    def _dequantised(self, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, "n d_x"]:
        """Observations with the noise that the columns with grid steps get when a posterior is built."""
        return dequantised(x, self.method.grid_steps, *self._stream)

    _stream: tuple[int, ...] = ()

    def _kept(self, x: Float[np.ndarray, "n d_x"], trimmed: float) -> Bool[np.ndarray, " n"]:
        """All rows but the fraction that is farthest from the robust location."""
        y = np.linalg.solve(np.asarray(self._centre.factor), (x - np.asarray(self._centre.location)).T)
        kept = np.ones(len(x), bool)
        out = min(int(np.floor(trimmed * len(x))), len(x) - 2)
        kept[np.argsort(-(y**2).sum(axis=0), kind="stable")[: max(out, 0)]] = False
        return kept

    def _support(self, choices: Choices) -> UnconstrainedPrior:
        key = (choices.shift, choices.width)
        if key not in self._supports:
            own = self.own_prior
            self._supports[key] = unconstrained(self.method.prior if own is None else choices.prior(own))
        return self._supports[key]

    def _prior_of(self, choices: Choices) -> Answer:
        own = self.own_prior
        return _PriorAnswer(self.posterior.prior if own is None else choices.prior(own))


class _PriorAnswer(NamedTuple):
    """A prior as it is drawn."""

    prior: Any

    @property
    def mean(self) -> Float[np.ndarray, " d"]:
        return self.prior.mean

    @property
    def std(self) -> Float[np.ndarray, " d"]:
        return self.prior.std

    def density(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        return self.prior.marginal(j, grid)


def _noting(call: Any) -> tuple[Any, tuple[str, ...]]:
    """What a call returns, and of what it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, tuple(dict.fromkeys(str(each.message) for each in caught))
