"""Rough draws of posteriors that differ only in what each observation counts.

Where the loss of every observation is kept at the parameters that were visited, that of other counts is one product
with a matrix: often no parameter has to be visited again.
"""

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
from nsmbayes.samplers.independence import adapt, effective_draws, resample
from nsmbayes.samplers.strategy import rough_stage, rough_start, thorough_draws
from nsmbayes.samplers.students import Population
from nsmbayes.samplers.target import Target

_ENOUGH = 0.4  # of a stage's draws, effectively: what was visited then serves for other counts
_NEVER = 1e300  # loss of an observation that cannot happen


class Recounted:
    """The posterior of a loss at beta = 1, with counts that change from call to call; it remembers what was visited.

    Example:
        >>> from nsmbayes.priors import GaussianPrior, unconstrained
        >>> class Squares(Loss):
        ...     def each(self, theta):
        ...         return 0.5 * (theta - jnp.array([1.0, 3.0, 50.0])) ** 2
        >>> posterior = Recounted(unconstrained(GaussianPrior(np.zeros(1), 100 * np.eye(1))), Squares(), seed=0)
        >>> bool(abs(posterior.draws(np.array([1.0, 1.0, 0.0]), count=60).mean() - 2) < 0.3)
        True
        >>> visited = posterior.visited
        >>> bool(abs(posterior.draws(np.array([1.0, 0.9, 0.0]), count=60).mean() - 2) < 0.3)
        True
        >>> posterior.visited == visited
        True
    """

    def __init__(self, prior: UnconstrainedPrior, loss: Loss, *, seed: int):
        self._prior, self._loss, self._seed = prior, loss, seed
        self._losses: list[Float[np.ndarray, "k n"]] = []  # of each observation at what was visited
        self._population: Population | None = None

    @property
    def visited(self) -> int:
        """Number of parameters at which losses were computed."""
        return sum(map(len, self._losses))

    @double_precision
    def draws(self, counts: Float[np.ndarray, " n"], *, count: int) -> Float[np.ndarray, "count d"]:
        """Some draws: of what was visited before, weighed for these counts; if that is not enough, of more stages."""
        key_start, key = jax.random.split(jax.random.fold_in(seed_key(self._seed), self.visited))
        size, before = rough_stage(self._prior.dim), self._population
        if before is not None:
            before = before._replace(losses=counted_losses(np.concatenate(self._losses), counts))
            if effective_draws(before, 1.0) >= _ENOUGH * size:
                return resample(before, 1.0, count)
        candidates = np.asarray(self._prior.sample(key_start, size))
        target = Target(self._prior, _Counted(self._loss, jnp.asarray(counts)), jnp.asarray(1.0))
        first = rough_start(target, candidates) if before is None else None
        seen = list(self._losses)

        def evaluate(positions: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray]:
            log_priors, losses = losses_at(positions, self._prior, self._loss)
            seen.append(losses)
            return log_priors, counted_losses(losses, counts)

        try:
            found = adapt(evaluate, candidates, beta=1.0, key=key, first=first, before=before, rough=True)
        except ConvergenceError:
            return thorough_draws(target, count=count, seed=self._seed)
        self._population, self._losses = found, seen
        return resample(found, 1.0, count)


def counted_losses(losses: Float[np.ndarray, "k n"], counts: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """The total loss for each of k parameters; infinite where an observation that counts cannot happen."""
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


class _Counted(Loss):
    """A loss with what each observation counts."""

    loss: Loss
    counts: Float[Array, " n"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""
        return jnp.where(self.counts > 0, self.counts * self.loss.each(theta), 0.0)
