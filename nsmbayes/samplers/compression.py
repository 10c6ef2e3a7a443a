"""Many observations: a weighted subset of them that reproduces the loss of all observations around the posterior.

A loss of a few parameters is a smooth function, so a sum over many observations hardly differs from a weighted sum over
some hundreds of them with suitable weights. The weights are matched to the loss of all observations at a few thetas.
The full loss is evaluated only there, and not at the thousands of parameters that a sampler visits.
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
"""With more observations than this, a posterior for data of several columns is computed from a subset."""
SUBSET = 250
"""Number of observations in the subset."""
ACCEPTED = 0.1
"""Largest error, in nats, with which a subset is accepted."""
CHECKED = 16
"""Number of draws at which the loss of the subset is compared with that of all observations."""

_GROWTH = 16  # with 16 times the observations a posterior is a quarter as wide: thetas of one step serve the next
_REPAIRS = 3
_COSTLY = 50_000  # with more observations than this, the full loss is computed at as few thetas as possible
_VERY_COSTLY = 200_000  # with more observations than this, there is only one repair
_STAGE, _CHAINS = 400, 4


class Compression(NamedTuple):
    """A weighted subset of the observations, and how well its loss reproduces that of all observations."""

    full: BlockedLoss
    """The loss of all observations, in random order; the first block is the subset."""
    order: Int[np.ndarray, " n"]
    """The row of each observation of `full` in the data."""
    weights: Float[np.ndarray, " m"]
    """The weight of each observation of the subset; the weights sum to about n."""
    theta: Float[np.ndarray, "k d"]
    """The parameters at which the weights are matched, in the space of the prior."""
    total: Float[np.ndarray, " k"]
    """The loss of all observations at `theta`."""
    pilot: Float[np.ndarray, "k d"]
    """Draws of the posterior of the subset, in the unconstrained space, from few evaluations."""
    error: float
    """The standard deviation, over posterior draws, of beta times the subset's loss minus that of all observations."""

    @property
    def observations(self) -> int:
        """Number of observations in the subset."""
        return len(self.weights)

    @property
    def loss(self) -> NSMLoss:
        """The weighted loss of the subset."""
        return self.full.block(0).reweighted(self.weights)

    def checked(self, theta: Float[np.ndarray, "k d"], beta: float) -> "Compression":
        """A copy with the error at posterior draws `theta`, which are added to the thetas for matching."""
        total, [each] = self.full.total(theta), losses_at([self.full.block(0)], theta)
        return self._replace(
            theta=np.concatenate([self.theta, theta]),
            total=np.concatenate([self.total, total]),
            error=float(beta * np.std(each @ self.weights - total)),
        )

    def refined(self, beta: float) -> "Compression":
        """A copy with weights matched at all thetas at which the loss of all observations is known."""
        [each] = losses_at([self.full.block(0)], self.theta)
        return self._replace(weights=matched_weights(each, self.total, self.weights, beta))

    def blocks(self, theta: Float[np.ndarray, "k d"]) -> Iterator[Float[np.ndarray, "k block"]]:
        """The losses of all observations at k thetas, block after block, in the order of `full`."""
        return self.full.each(theta)

    def row_losses(self, theta: Float[np.ndarray, "k d"], rows: Int[np.ndarray, " r"]) -> Float[np.ndarray, "k r"]:
        """The losses of the observations in `rows` at k thetas."""
        return self.full.of_rows(theta, self.by_row(np.arange(self.full.n))[rows])

    def by_row(self, values: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        """`values`, given in the order of `full`, in the order of the rows of the data."""
        sorted_values = np.empty_like(values)
        sorted_values[self.order] = values
        return sorted_values

    def describe(self) -> str:
        """How good the approximation is, in a sentence for users."""
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
    """A weighted subset of the observations for the posterior at learning rate `beta`; see `BlockedLoss.multiples`.

    `near` are unconstrained draws of a posterior of some hundreds of the observations, if available.

    The posterior of the subset alone gives thetas at which its weights are matched to the loss of 16 times as many
    observations. The posterior with these weights is a quarter as wide and gives the thetas for the next 16 times, and
    so on until all observations are included. Then the error is checked at posterior draws, and while it is large,
    these draws are added to the thetas.
    """
    order = np.random.default_rng([seed, len(x)]).permutation(len(x))
    full = BlockedLoss(setting, x[order], SUBSET, None if multiples is None else multiples[order])
    subset, n, d = full.block(0), full.n, prior.dim
    thetas = max(32, (d + 1) * (d + 2) * 3 // 4)  # 1.5 times the number of coefficients of a quadratic function
    keys = iter(jax.random.split(seed_key(seed), 32))

    def draw(weights: np.ndarray, start: np.ndarray, first: StudentMixture | None = None) -> np.ndarray:
        target = Target(prior, subset.reweighted(weights), jnp.asarray(beta))
        return _draws(target, start, first or bent_around(start, next(keys)), thetas, next(keys))

    pilot = np.asarray(prior.sample(next(keys), max(_STAGE, 40 * d)))
    size, weights = SUBSET, np.ones(SUBSET)
    positions = draw(weights, pilot, None if near is None else around(near))
    while True:
        grown = n if n <= 2 * _GROWTH * size else _GROWTH * size
        last = grown == n > _COSTLY  # weights are nearly right by now, and are matched again in the checks below
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
    """Posterior draws by importance sampling from a wider start, or by chains if that fails."""
    beta, count = float(target.beta), max(_STAGE, count, 40 * start.shape[1])
    evaluate = evaluation(log_prior, total_loss, target)
    try:
        return resample(adapt(evaluate, start, beta=beta, key=key, first=first, quick=True), beta, count)
    except ConvergenceError:
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        return AdaptiveSampler(chains=_CHAINS, draws=-(-count // _CHAINS)).sample(target, seed=seed).flat


def _spaced(positions: Float[np.ndarray, "k d"], count: int) -> Float[np.ndarray, "count d"]:
    """`count` of the draws, evenly spaced."""
    return positions[np.linspace(0, len(positions) - 1, count).astype(int)]
