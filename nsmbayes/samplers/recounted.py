"""Rough draws of posteriors that differ only in how the losses of the observations are combined.

The loss of every observation is kept at all visited parameters. Combining the losses in another way then costs almost
nothing: often the loss need not be evaluated again.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses import Loss
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers.independence import adapt, effective_draws
from nsmbayes.samplers.metropolis import log_weights_of
from nsmbayes.samplers.strategy import rough_stage, rough_start, thorough_draws
from nsmbayes.samplers.students import Population, around
from nsmbayes.samplers.target import Target

Total = Callable[[Float[np.ndarray, "k n"]], Float[np.ndarray, " k"]]
"""A function that maps the losses of all observations at k parameters to one total for each parameter."""

_ENOUGH = 0.4  # earlier evaluations are reused if their ESS for the new total is this fraction of a stage's draws
_NEVER = 1e300  # loss of an observation with density zero
_THOROUGH = 400  # draws from chains if rough draws fail


class Recounted:
    """The posterior of a loss at beta = 1, for totals that change from call to call; it keeps all evaluations.

    `start` is a loss similar to the first total. It is used to find modes if there are many parameters, and chains
    sample its posterior if nothing else works.

    Example:
        >>> from nsmbayes.priors import GaussianPrior, unconstrained
        >>> class Squares(Loss):
        ...     def each(self, theta):
        ...         return 0.5 * (theta - jnp.array([1.0, 3.0, 50.0])) ** 2
        >>> prior = unconstrained(GaussianPrior(np.zeros(1), 100 * np.eye(1)))
        >>> visited = Recounted(prior, Squares(), start=Squares(), seed=0)
        >>> def mean(counts):
        ...     return float(Moments.of(visited.population(counting(np.array(counts)))).mean[0])
        >>> abs(mean([1.0, 1.0, 0.0]) - 2) < 0.3
        True
        >>> before = visited.visited
        >>> abs(mean([1.0, 0.9, 0.0]) - 2) < 0.3, visited.visited == before
        (True, True)
    """

    def __init__(self, prior: UnconstrainedPrior, loss: Loss, *, start: Loss, seed: int):
        self._prior, self._loss, self._start, self._seed = prior, loss, start, seed
        self._losses: list[Float[np.ndarray, "k n"]] = []  # of each observation at all visited parameters
        self._population: Population | None = None
        self._final = False  # whether chains had to be used

    @property
    def visited(self) -> int:
        """Number of parameters at which losses were computed."""
        return sum(map(len, self._losses))

    @property
    def losses(self) -> Float[np.ndarray, "visited n"]:
        """The loss of every observation at every visited parameter."""
        return np.concatenate(self._losses)

    @double_precision
    def population(self, total: Total, *, rough: bool = True) -> Population:
        """The visited parameters, weighted for this total; if these are not enough, further stages are added.

        If `rough` is False, the proposals have as many components as those of a sampler.
        """
        key_start, key = jax.random.split(jax.random.fold_in(seed_key(self._seed), self.visited))
        size, before = rough_stage(self._prior.dim), self._population
        if before is not None:
            before = before._replace(losses=total(self.losses))
            if self._final or effective_draws(before, 1.0) >= _ENOUGH * size:
                return before
        candidates = np.asarray(self._prior.sample(key_start, size))
        target = Target(self._prior, self._start, jnp.asarray(1.0))
        first = rough_start(target, candidates) if before is None else None
        seen = list(self._losses)

        def evaluate(positions: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray]:
            log_priors, losses = losses_at(positions, self._prior, self._loss)
            seen.append(losses)
            return log_priors, total(losses)

        try:
            found = adapt(evaluate, candidates, beta=1.0, key=key, first=first, before=before, rough=rough)
        except ConvergenceError:
            return self._by_chains(target, total)
        self._population, self._losses = found, seen
        return found

    def _by_chains(self, target: Target, total: Total) -> Population:
        """Draws of the posterior of `start` by chains, weighted for another total."""
        draws = thorough_draws(target, count=_THOROUGH, seed=self._seed)
        log_priors, losses = losses_at(draws, self._prior, self._loss)
        starts = map_rows(_total, draws, self._prior, self._start)
        self._losses, self._final = [losses], True
        self._population = Population(draws, log_priors, total(losses), log_priors - starts, (), around(draws))
        return self._population


class Moments(NamedTuple):
    """Mean and covariance of the unconstrained posterior from a weighted population, and the weights."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    weights: Float[np.ndarray, " k"]

    @property
    def effective(self) -> float:
        """Effective sample size."""
        return float(1 / (self.weights**2).sum())

    @classmethod
    def of(cls, population: Population) -> "Moments":
        """The moments of the posterior at beta = 1."""
        logs = log_weights_of(population, 1.0)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = weights @ population.positions
        offsets = population.positions - mean
        return cls(mean, (weights[:, None] * offsets).T @ offsets, weights)


def counting(counts: Float[np.ndarray, " n"]) -> Total:
    """The total in which each loss is multiplied by its count; see `counted_losses`."""
    return lambda losses: counted_losses(losses, counts)


def counted_losses(losses: Float[np.ndarray, "k n"], counts: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """The weighted sum of losses for each of k parameters; infinite if an observation with a count has density zero."""
    impossible = (losses[:, counts > 0] >= _NEVER).any(axis=1)
    return np.where(impossible, np.inf, losses @ counts)


def losses_at(
    positions: Float[np.ndarray, "k d"], prior: UnconstrainedPrior, loss: Loss
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k n"]]:
    """Log densities of the prior and the loss of every observation at k unconstrained parameters."""
    log_priors, losses = map_rows(_each, positions, prior, loss)
    return log_priors, np.minimum(np.nan_to_num(losses, nan=_NEVER), _NEVER)


def _each(u: Float[Array, " d"], prior: UnconstrainedPrior, loss: Loss) -> tuple[Array, Array]:
    return prior.log_prob(u), loss.each(prior.constrain(u))


def _total(u: Float[Array, " d"], prior: UnconstrainedPrior, loss: Loss) -> Array:
    return loss(prior.constrain(u))
