"""Many observations: a weighted subset of them whose loss is that of all, around the posterior.

A loss of a few parameters is a smooth function, and a sum over many observations hardly differs from a weighted sum
over some hundreds of them, if the weights are chosen for it. They are matched to the loss of all at few thetas; its
cost is then paid there only, and not at the thousands that a sampler visits.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Shaped

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses import NSMLoss, NSMSetting
from nsmbayes.losses.blocks import AT_ONCE, BlockedLoss, losses_at
from nsmbayes.losses.compressed import matched_weights
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers.independence import adapt, bent_around, evaluation, resample
from nsmbayes.samplers.strategy import AdaptiveSampler
from nsmbayes.samplers.students import StudentMixture, around
from nsmbayes.samplers.target import Target, log_prior, total_loss

MANY = 500
"""Observations above which a posterior in several columns is computed from a subset."""
SUBSET = 250
"""Observations in the subset."""
ACCEPTED = 0.1
"""Error in nats up to which a subset is accepted."""
CHECKED = 16
"""Draws at which the loss of the subset is compared with that of all."""

_GROWTH = 16  # a posterior is a quarter as wide with so many times the observations: thetas of one serve the next
_REPAIRS = 3
_COSTLY = 50_000  # observations above which the loss of all is computed at as few thetas as will do
_VERY_COSTLY = 200_000  # and above which there is one repair
_STAGE, _CHAINS = 400, 4


class Compression(NamedTuple):
    """A weighted subset of the observations, and how well its loss reproduces that of all."""

    full: BlockedLoss
    """The loss of all observations, in random order; the first block is the subset."""
    order: Int[np.ndarray, " n"]
    """The row of each of them."""
    weights: Float[np.ndarray, " m"]
    """What each observation of the subset counts; all observations together, about n."""
    theta: Float[np.ndarray, "k d"]
    """Where the weights are matched, in the space of the prior."""
    total: Float[np.ndarray, " k"]
    """The loss of all observations there."""
    pilot: Float[np.ndarray, "k d"]
    """Draws of the posterior of the subset, in the unconstrained space, from few evaluations."""
    error: float
    """The standard deviation, over draws of the posterior, of beta times the subset's loss minus that of all."""

    @property
    def observations(self) -> int:
        """Observations in the subset."""
        return len(self.weights)

    @property
    def loss(self) -> NSMLoss:
        """The weighted loss of the subset."""
        return self.full.block(0).reweighted(self.weights)

    def checked(self, theta: Float[np.ndarray, "k d"], beta: float) -> "Compression":
        """With the error at `theta`, which are draws of the posterior, and these among the thetas to be matched."""
        total, [each] = self.full.total(theta), losses_at([self.full.block(0)], theta)
        return self._replace(
            theta=np.concatenate([self.theta, theta]),
            total=np.concatenate([self.total, total]),
            error=float(beta * np.std(each @ self.weights - total)),
        )

    def refined(self, beta: float) -> "Compression":
        """With the weights matched at all thetas at which the loss of all observations is known."""
        [each] = losses_at([self.full.block(0)], self.theta)
        return self._replace(weights=matched_weights(each, self.total, self.weights, beta))

    def blocks(self, theta: Float[np.ndarray, "k d"]) -> Iterator[Float[np.ndarray, "k block"]]:
        """The losses of all observations at k thetas, block after block, in the order of `full`."""
        return self.full.each(theta)

    def row_losses(self, theta: Float[np.ndarray, "k d"], rows: Int[np.ndarray, " r"]) -> Float[np.ndarray, "k r"]:
        """The losses of some of the observations."""
        return self.full.of_rows(theta, self.by_row(np.arange(self.full.n))[rows])

    def by_row(self, values: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        """Values in the order of `full`, put in the order of the observations."""
        sorted_values = np.empty_like(values)
        sorted_values[self.order] = values
        return sorted_values

    def describe(self) -> str:
        """One sentence."""
        verdict = "" if self.error <= ACCEPTED else " This is more than it should be: widths may be off."
        return (
            f"Computed from {self.observations:,} weighted observations, whose loss differs from that of all "
            f"{self.full.n:,} by {self.error:.2g} nats (standard deviation over {CHECKED} draws).{verdict}"
        )


@double_precision
def compress(
    prior: UnconstrainedPrior,
    setting: NSMSetting,
    x: Float[np.ndarray, "n d_x"],
    *,
    beta: float,
    seed: int,
    multiples: Float[np.ndarray, " n"] | None = None,
    near: Float[np.ndarray, "k d"] | None = None,
) -> Compression:
    """A subset of the observations, weighted for the posterior at learning rate `beta`; see `BlockedLoss.multiples`.

    `near` are unconstrained draws of a posterior of some hundreds of the observations, if there are any.

    The posterior of the subset alone gives thetas at which its weights are matched to the loss of 16 times as many
    observations; the posterior with these weights, a quarter as wide, gives those for the next 16 times, until the loss
    is that of all. Then draws are checked, and added to the thetas while the error is large.
    """
    order = np.random.default_rng([seed, len(x)]).permutation(len(x))
    full = BlockedLoss(setting, x[order], SUBSET, None if multiples is None else multiples[order])
    subset, n, d = full.block(0), full.n, prior.dim
    thetas = max(32, (d + 1) * (d + 2) * 3 // 4)  # a quadratic function has two thirds of the second number
    keys = iter(jax.random.split(seed_key(seed), 32))

    def draw(weights: np.ndarray, start: np.ndarray, first: StudentMixture | None = None) -> np.ndarray:
        target = Target(prior, subset.reweighted(weights), jnp.asarray(beta))
        return _draws(target, start, first or bent_around(start, next(keys)), thetas, next(keys))

    pilot = np.asarray(prior.sample(next(keys), max(_STAGE, 40 * d)))
    size, weights = SUBSET, np.ones(SUBSET)
    positions = draw(weights, pilot, None if near is None else around(near))
    while True:
        grown = n if n <= 2 * _GROWTH * size else _GROWTH * size
        last = grown == n > _COSTLY  # weights are nearly right by now, and are matched again where draws are checked
        few = max(AT_ONCE, (d + 1) * (d + 2) // 2)
        theta = constrain_rows(prior, _spaced(positions, few if last else thetas))
        total, [each] = full.total(theta, first=grown), losses_at([subset], theta)
        weights, size = matched_weights(each, total, weights * grown / size, beta), grown
        positions = draw(weights, positions)
        if size == n:
            break
    found = Compression(full, order, weights, theta, total, positions, np.inf)
    for _ in range(_REPAIRS if n <= _VERY_COSTLY else 1):
        found = found.checked(constrain_rows(prior, _spaced(positions, CHECKED)), beta)
        enough = found.error <= ACCEPTED / 2
        found = found.refined(beta)
        if enough:
            break
        positions = draw(found.weights, positions)
        found = found._replace(pilot=positions)
    return found


def _draws(
    target: Target, start: np.ndarray, first: StudentMixture | None, count: int, key: Key[Array, ""]
) -> Float[np.ndarray, "k d"]:
    """Draws of a posterior by importance, from a start that is wider; by chains, where that fails."""
    beta, count = float(target.beta), max(_STAGE, count, 40 * start.shape[1])
    evaluate = evaluation(log_prior, total_loss, target)
    try:
        return resample(adapt(evaluate, start, beta=beta, key=key, first=first, quick=True), beta, count)
    except ConvergenceError:
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        return AdaptiveSampler(chains=_CHAINS, draws=-(-count // _CHAINS)).sample(target, seed=seed).flat


def _spaced(positions: Float[np.ndarray, "k d"], count: int) -> Float[np.ndarray, "count d"]:
    """So many of the draws, evenly spaced."""
    return positions[np.linspace(0, len(positions) - 1, count).astype(int)]
