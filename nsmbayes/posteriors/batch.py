"""Posteriors of many data sets."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.errors import InputError
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.losses.statistics import LossRecipe, total_loss
from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.empirical import Empirical
from nsmbayes.posteriors.sampled import SampledPosterior
from nsmbayes.priors import GaussianPrior
from nsmbayes.samplers.chains import Diagnostics, diagnose
from nsmbayes.scatter import LocationScatter, fit_batch
from nsmbayes.surrogates import NoisyFamily

_ROWS = 1600  # observations whose hidden layers are in memory at the same time


@dataclass(frozen=True)
class ConjugateBatch:
    """Gaussian posteriors of k data sets: means (k, d) and covariances (k, d, d)."""

    mean: Float[np.ndarray, "k d"]
    covariance: Float[np.ndarray, "k d d"]
    beta: Float[np.ndarray, " k"]
    """The learning rate of each posterior."""

    @classmethod
    def of(cls, posteriors: Sequence[ConjugatePosterior]) -> "ConjugateBatch":
        """Collect posteriors of several data sets in a batch."""
        return cls(
            np.stack([each.mean for each in posteriors]),
            np.stack([each.covariance for each in posteriors]),
            np.array([each.beta for each in posteriors]),
        )

    def __len__(self) -> int:
        return len(self.mean)

    def sample(self, draws: int, seed: int = 0) -> Float[np.ndarray, "k draws d"]:
        """Return `draws` independent draws from each posterior."""
        rng = np.random.default_rng(checks.integer(seed, "seed"))
        noise = rng.standard_normal((len(self), checks.integer(draws, "draws"), self.mean.shape[1]))
        return self.mean[:, None] + noise @ np.linalg.cholesky(self.covariance).transpose(0, 2, 1)


@dataclass(frozen=True)
class PosteriorBatch:
    """Posteriors of several data sets: `batch[i]` is the posterior of data set i, built on first access."""

    draws: tuple[Float[np.ndarray, "chains draws d"], ...]
    """The draws of each posterior."""
    beta: Float[np.ndarray, " k"]
    """The learning rate of each posterior."""
    build: Callable[[int], SampledPosterior]
    """Builds the posterior of one data set."""

    @classmethod
    def of(cls, posteriors: Sequence[SampledPosterior]) -> "PosteriorBatch":
        """Collect existing posteriors in a batch."""
        draws, betas = tuple(each.draws for each in posteriors), np.array([each.beta for each in posteriors])
        return cls(draws, betas, tuple(posteriors).__getitem__)

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, i: int) -> SampledPosterior:
        if checks.integer(i, "i", at_least=-len(self)) >= len(self):
            raise IndexError(f"`i` must be the number of a data set, from 0 to {len(self) - 1}; got {i}.")
        return self._made(range(len(self))[i])

    @functools.cached_property
    def _made(self) -> Callable[[int], SampledPosterior]:
        return functools.cache(self.build)

    @functools.cached_property
    def mean(self) -> Float[np.ndarray, "k d"]:
        """The mean of each posterior."""
        return np.stack([each.mean(axis=(0, 1)) for each in self.draws])

    @functools.cached_property
    def covariance(self) -> Float[np.ndarray, "k d d"]:
        """The covariance of each posterior."""
        return np.stack([np.atleast_2d(np.cov(each.reshape(-1, each.shape[-1]).T)) for each in self.draws])

    @functools.cached_property
    def _diagnostics(self) -> list[Diagnostics]:
        return [diagnose(each) for each in self.draws]

    @property
    def r_hat(self) -> Float[np.ndarray, "k d"]:
        """Rank-normalised split R-hat of each parameter of each posterior."""
        return np.stack([each.r_hat for each in self._diagnostics])

    @property
    def ess(self) -> Float[np.ndarray, "k d"]:
        """Bulk effective sample size of each parameter of each posterior."""
        return np.stack([each.ess_bulk for each in self._diagnostics])

    def sample(self, draws: int, seed: int = 0) -> Float[np.ndarray, "k draws d"]:
        """Return `draws` draws from each posterior."""
        draws, seed = checks.integer(draws, "draws", at_least=1), checks.integer(seed, "seed")
        return np.stack([Empirical(each.reshape(-1, each.shape[-1])).sample(draws, seed) for each in self.draws])


@double_precision
def batch_posteriors(
    recipe: LossRecipe,
    prior: GaussianPrior,
    x: Float[np.ndarray, "k n d_x"],
    beta: float,
    seed: int,
    resolution: float = 0.0,
) -> ConjugateBatch:
    """Build the posterior of every data set x[i], each with its own location, scatter and coordinates.

    Weights are by distance alone, without a search for excess observations.
    """
    x = np.stack([recipe.dequantise(dataset) for dataset in x])
    location, scatter, ok = fit_batch(x, recipe.estimator, seed_key(seed))
    if not ok.all():
        tied = np.flatnonzero(~ok)
        raise InputError(
            f"`x` has {len(tied)} data sets too tied for a robust scatter (first: {tied[0]}). Add jitter of one "
            "grid step, or leave them out."
        )
    centres = LocationScatter.from_scatter(location, scatter, recipe.estimator)
    if isinstance(recipe.family, NoisyFamily):
        totals = _noisy_totals(recipe, x, centres)
    else:
        totals = _totals(recipe, jnp.asarray(x), centres)
    mean, precision = gaussian_posterior(prior, jax.tree.map(np.asarray, totals), beta, resolution)
    return ConjugateBatch(mean, np.linalg.inv(precision), np.full(len(mean), beta))


def _noisy_totals(recipe: LossRecipe, x: Float[np.ndarray, "k n d_x"], centres: LocationScatter) -> Quadratic:
    """Total loss of each data set, one after the other, because each has its own noisy points."""
    totals = [
        total_loss(recipe.around(jax.tree.map(lambda a, i=i: a[i], centres)), dataset) for i, dataset in enumerate(x)
    ]
    return Quadratic(*(np.stack(parts) for parts in zip(*totals, strict=True)))


@eqx.filter_jit
def _totals(recipe: LossRecipe, x: Float[Array, "k n d_x"], centres: LocationScatter) -> Quadratic:
    def one(dataset: tuple[Float[Array, "n d_x"], LocationScatter]) -> Quadratic:
        rows, centre = dataset
        loss: Any = recipe.around(centre)
        return jax.tree.map(lambda a: a.sum(axis=0), jax.vmap(loss)(rows))

    together = max(1, min(len(x), _ROWS // x.shape[1]))
    return jax.lax.map(one, (x, centres), batch_size=together)
