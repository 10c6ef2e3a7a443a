"""A posterior that is updated immediately while data and choices are moved, and rebuilt when they are at rest."""

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
    """All data that the page draws."""

    x: Float[np.ndarray, "n d_x"]
    weights: Float[np.ndarray, " n"]
    weighting: Weighting
    """Weighting by distance, for rows with any values."""
    kept: Bool[np.ndarray, " n"]
    """Mask of the rows in the trimmed comparison."""
    answers: dict[str, Answer | None]
    """Posteriors by label, that of the model's own method first; None for one that could not be computed."""
    prior: Answer
    notes: tuple[str, ...]
    """Notes on how the results were computed."""


class Explorer(ABC, Generic[P]):
    """One data set, one posterior at rest, and fast updates for changes of the data and choices.

    While something moves, location, scatter and excess factors are those of the posterior at rest; a moved row is
    weighted by distance alone. `rebuilt` fits all of them again.
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
        """Build an explorer from a trained method and data; the learning rate is given, or calibrated once."""
        posterior, said = _noting(lambda: method.build_posterior(x, beta=beta, seed=seed))
        ones = (1.0,) * posterior.dim
        choices = Choices(
            beta=posterior.beta, zeta=zeta_of(method.weight), shift=(0.0,) * len(ones), width=ones, trimmed=0.0
        )
        return cls(method, posterior, choices, seed=seed, said=said)

    def rebuilt(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> "Explorer[P]":
        """Return an explorer with everything refitted to data and choices, at the chosen learning rate."""
        posterior, said = _noting(lambda: self._build(x, choices))
        return type(self)(self.method, posterior, choices, seed=self.seed, said=said, likelihoods=self._likelihoods)

    @property
    def comparisons(self) -> tuple[str, ...]:
        """Labels of the comparisons shown with the model's own posterior; empty if the model has no density."""
        return tuple(self._likelihoods)

    @property
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations at rest."""
        return self.posterior.x

    @functools.cached_property
    def own_prior(self) -> GaussianPrior | None:
        """The model's prior if it is Gaussian, otherwise None: only Gaussian priors can be moved by sliders."""
        try:
            return as_gaussian(self.method.prior)
        except InputError:
            return None

    @double_precision
    def view(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> View:
        """Compute the content of the page for data with moved rows, and for other choices."""
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
        """Run all live computations once, so that they are compiled before the user waits for them."""
        x = self.x.copy()
        x[0] += x.std(axis=0)
        for row, trimmed in ((0, 0.0), (1, 0.2)):
            x[row] = x[row] + 0.1 * x.std(axis=0)
            self.view(x, dataclasses.replace(self.choices, trimmed=trimmed))
        assert self.posterior.certificate is not None  # cached for the page

    @abstractmethod
    def _build(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> P:
        """Build the posterior with everything refitted."""

    @abstractmethod
    def _own(
        self,
        noisy: Float[np.ndarray, "n d_x"],
        multiples: Float[np.ndarray, " n"],
        rows: Int[np.ndarray, " k"],
        choices: Choices,
    ) -> tuple[Answer | None, tuple[str, ...]]:
        """The posterior of the model's own method with some rows changed, and notes on how it was computed."""

    @property
    def multiples(self) -> Float[np.ndarray, " n"]:
        """The factor of each row that downweights excess observations."""
        factor = self.posterior.factor_by_number()
        return np.ones(self.posterior.n) if factor is None else np.asarray(factor.values)

    @property
    def _centre(self) -> LocationScatter:
        return self.posterior.weighting.centre

    @property
    def _weight(self) -> Weight:
        return self.posterior.weighting.weight

    def _dequantised(self, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, "n d_x"]:
        """Observations with the same noise in columns with grid steps as in the posterior."""
        return dequantised(x, self.method.grid_steps, *self._stream)

    _stream: tuple[int, ...] = ()

    def _kept(self, x: Float[np.ndarray, "n d_x"], trimmed: float) -> Bool[np.ndarray, " n"]:
        """Mask of all rows except the fraction that is farthest from the robust location."""
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
    """A prior with the interface of `Answer`."""

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
    """Return the result of a call, and the messages of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    return found, tuple(dict.fromkeys(str(each.message) for each in caught))
