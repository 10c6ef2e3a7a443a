"""Which observations are outliers, by a likelihood that mixes the model with a density of outliers.

In this likelihood, every observation is a draw of the model or an outlier, and outliers are described by a kernel
density of the other outliers (`weights.accounts`). Sampling it is cheap: it needs only the density at the observations,
which costs a fraction of a score-matching loss with noise. The factor of an observation is the probability that it is a
draw of the model, averaged over the sampled parameters. Where it is uncertain which rows are outliers, different
parameters leave different rows out, and they spread more than with fixed factors: `wider` says by how much.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsmbayes._internal.parallel import call_each, map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.waiting import stage
from nsmbayes.errors import InputError
from nsmbayes.losses import NLELoss
from nsmbayes.losses.cells import Cells
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers.independence import resample
from nsmbayes.samplers.recounted import Moments, Recounted, counting
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import MixtureDensity
from nsmbayes.weights import PlateauIMQ, Weighting
from nsmbayes.weights.accounts import Account, beside_outliers, whitened
from nsmbayes.weights.excess import (
    JOINT,
    LEVELS,
    Excess,
    Factor,
    Places,
    Smoothed,
    expected,
    joint_sums,
    kernel_sums,
    model_at,
    smoothed,
    spreads,
    view_columns,
    views_of,
)
from nsmbayes.weights.projections import revealing_axes
from nsmbayes.weights.tails import Tail

MOST = 500
"""The model is fitted to at most this many observations; of a larger data set, to a random subset."""
_DRAWS, _FEWER = 60, 20  # parameter draws over which the model is averaged; the second with more than MOST observations
_KEPT, _MAJORITY = 0.5, 0.55  # smallest factor of rows used for location and scatter; the share of such rows it takes
_TYPICAL, _NEARLY_ALL = 40, 0.99  # observations drawn from the model at each parameter; the share of them within reach
_ALLOWED, _LARGEST = 0.5, 100.0  # power of the ratio of variances, and the largest ratio accepted
_FEWEST = 5  # effective draws per parameter that are needed to compare variances
_NOTABLE = 1.1  # ratio of variances above which `describe` mentions it
_AWAY, _MOST = 1e4, 1e6  # how far `_banished` moves rows, in scales; largest loss of an observation, in nats
_FINER = 4  # cells are this many times finer than those of the loss, since the results change fast from place to place
_ROWS, _AT_ONCE = 1000, 16  # observations compared in one compiled call, and the number of such calls at once

_TIGHT = PlateauIMQ(radius=1.0, zeta=1.0, columns=1)

BY_DISTANCE = "Weights are by distance alone: there is no mixture density with which the data could be compared."
"""The note of a posterior that should check for excess but cannot."""

FitCentre = Callable[[Float[np.ndarray, "k d_x"]], LocationScatter]


class Suspects(NamedTuple):
    """Factors of the observations that reduce the weight of outliers, and the results they are computed from."""

    factor: Factor
    centre: LocationScatter
    """Location and scatter of the observations that are not outliers."""
    near: Float[np.ndarray, "k d"]
    """Draws of the model's parameter, unconstrained: a first approximation of the posterior."""
    density: MixtureDensity
    theta: Float[np.ndarray, "k d"]
    """The same draws in the space of the prior."""
    wider: float
    """The factor by which the variance grows because it is uncertain which observations are outliers."""
    reach: float
    """The Mahalanobis distance from the location within which 99 % of the model's own observations lie."""
    explained: bool = True
    """Whether some parameter explains at least half of the observations; otherwise all factors are 1."""

    def extended(self, count: int) -> "Suspects":
        """A copy with `count` more observations, all with a factor of 1."""
        one = np.ones(count)
        alone = Factor(one, one, one, np.full(count, -1), one * len(self.factor.values), one)
        factor = Factor(*(np.concatenate(both) for both in zip(self.factor, alone, strict=True)))
        return self._replace(factor=factor)

    @double_precision
    def model_density(self, column: int, at: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """The density of one column of x under the fitted model, averaged over its draws."""
        logs, means, variances = map_rows(_margin, self.theta, self.density, np.asarray(column))
        z = (at - means[..., None]) / np.sqrt(variances[..., None])
        heights = np.exp(logs[..., None] - 0.5 * z**2) / np.sqrt(2 * np.pi * variances[..., None])
        return heights.sum(axis=1).mean(axis=0)

    def describe(self) -> str:
        """The result in one or two sentences, for users."""
        if not self.explained:
            return "No parameter was found that explains half of the observations: weights are by distance alone."
        values = self.factor.values
        several = int((values < _KEPT).sum())
        said = f"{several:,} of {len(values):,} observations are more than the model explains and count less than half."
        if not several:
            said = "No group of similar observations is larger than the model explains."
        if self.wider > _NOTABLE:
            said += (
                f" Which observations are outliers is uncertain: that is worth {self.wider - 1:.0%} more variance, "
                "which calibrated learning rates of NSM-Bayes allow for."
            )
        return said


def wider_for(suspects: Suspects | None) -> float:
    """`suspects.wider`, or 1 if there was no search for outliers."""
    return 1.0 if suspects is None else suspects.wider


@double_precision
def find_suspects(
    excess: Excess,
    prior: UnconstrainedPrior,
    density: MixtureDensity,
    x: Float[np.ndarray, "n d_x"],
    fit_centre: FitCentre,
    seed: int,
) -> Suspects:
    """The factor of each observation: the probability that it is a draw of the model.

    The search starts from the likelihood of the middle of the data, because the likelihood with outliers is flat where
    the model explains no row. Location and scatter are then fitted again to the rows kept, if these are most rows.
    """
    stage("which observations are too many?")
    rows = np.sort(np.random.default_rng([seed, len(x)]).permutation(len(x))[:MOST])
    some = x[rows]
    loss, centre = NLELoss(density, jnp.asarray(some)), fit_centre(some)
    account = Account.of(some, centre)
    middle = Weighting(_TIGHT.for_columns(x.shape[1]), centre).at(some) ** 2
    visited = Recounted(prior, loss, start=NLELoss(density, jnp.asarray(some), jnp.asarray(middle)), seed=seed)
    visited.population(counting(middle))
    found = _Beliefs.of(visited, account, excess)
    kept = found.good > _KEPT
    if centre.is_robust and _MAJORITY * len(some) < kept.sum() < len(some):
        with suppress(InputError):  # the rows kept have no regular scatter: keep that of all rows
            centre = fit_centre(_banished(some, ~kept, centre))
            account = Account.of(some, centre)
            found = _Beliefs.of(visited, account, excess)
    explained = bool(found.good.mean() > _KEPT)
    values = sharpened(found.good) if explained else np.ones(len(some))
    population = visited.population(counting(values if explained else middle))
    near, fixed = resample(population, 1.0, _DRAWS), Moments.of(population)
    theta = constrain_rows(prior, near)
    if len(x) > len(some):
        values = np.ones(len(x))
        if explained:
            believed = constrain_rows(prior, found.near)
            values = sharpened(_good_elsewhere(density, believed, x, rows, centre, account, found.good))
        factor = explain_all(values, density, theta[:: _DRAWS // _FEWER], x, rows, centre)
    else:
        axes = revealing_axes(density, theta, some, centre) if x.shape[1] > JOINT else None
        observed = smoothed(some, some, centre, LEVELS, np.arange(len(some)), axes)
        lambdas = expected(density, theta, Places.of(some, centre, LEVELS, axes), observed.total)
        factor = Factor.explained(values, observed, lambdas, Tail.of(density, theta, some))
    drawn = density.draw(theta, _TYPICAL, np.random.default_rng(seed)).reshape(-1, x.shape[1])
    reach = float(np.quantile(np.linalg.norm(whitened(drawn, centre), axis=1), _NEARLY_ALL))
    wider, reach = (found.wider_than(fixed), reach) if explained else (1.0, 0.0)
    return Suspects(factor, centre, near, density, theta, wider, reach, explained)


def sharpened(good: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The factors of observations, from the probabilities that they are good; probabilities above 0.5 are raised.

    Every observation in a tail has some probability of being an outlier. Using the probabilities themselves as factors
    would lose a few percent of the data.

    Example:
        >>> sharpened(np.array([0.0, 0.3, 0.5, 0.9, 1.0])).round(3).tolist()
        [0.0, 0.3, 0.5, 0.988, 1.0]
    """
    return np.maximum(good, good**2 / (good**2 + (1 - good) ** 2))


class _Beliefs(NamedTuple):
    """Posterior results of the likelihood with outliers, for the observations and for the parameter."""

    good: Float[np.ndarray, " n"]
    moments: Moments
    near: Float[np.ndarray, "k d"]
    """Some draws of the parameter, unconstrained."""

    @classmethod
    def of(cls, visited: Recounted, account: Account, excess: Excess) -> "_Beliefs":
        d = account.y.shape[1]

        goods = []  # per visited parameter, in this order; parameters that are not kept come first

        def total(losses: Float[np.ndarray, "k n"]) -> Float[np.ndarray, " k"]:
            nats, good = account.explain(-losses.clip(-_MOST, _MOST), cost=excess.cost_in(d), clean=excess.clean)
            goods.append(good)
            return -nats

        population = visited.population(total, rough=False)
        moments = Moments.of(population)
        good = np.clip(moments.weights @ np.concatenate(goods)[-visited.visited :], 0.0, 1.0)
        return cls(good, moments, resample(population, 1.0, _FEWER))

    def wider_than(self, fixed: Moments) -> float:
        """The factor, at least 1, by which the variances of a posterior with fixed factors have to grow.

        It is the square root of the factor that a normal posterior would need: mostly one direction is uncertain, and
        widening all directions by the full factor cost more than it gained (docs/excess.md).
        """
        if min(self.moments.effective, fixed.effective) < _FEWEST * len(fixed.mean):
            return 1.0  # too few draws to tell
        shift = self.moments.mean - fixed.mean
        spread = self.moments.covariance + np.outer(shift, shift)
        ratio = float(np.trace(np.linalg.solve(fixed.covariance, spread))) / len(shift)
        return min(max(1.0, ratio), _LARGEST) ** _ALLOWED


def _good_elsewhere(
    density: MixtureDensity,
    thetas: Float[np.ndarray, "draws d_theta"],
    x: Float[np.ndarray, "n d_x"],
    rows: Int[np.ndarray, " m"],
    centre: LocationScatter,
    account: Account,
    good: Float[np.ndarray, " m"],
) -> Float[np.ndarray, " n"]:
    """The probability that each observation is good, given the probabilities `good` of the observations in `rows`."""
    share = (good.sum() + 0.5) / (len(good) + 1)
    odds = np.log(share) - np.log1p(-share) + account.log_volume
    blocks = []
    for start in range(0, len(x), _ROWS):
        block = np.pad(x[start : start + _ROWS], ((0, max(0, start + _ROWS - len(x))), (0, 0)), mode="edge")
        blocks.append((block, whitened(block, centre)))
    shared = (account.y, 1 - good, odds, thetas, density)
    parts = [
        part
        for start in range(0, len(blocks), _AT_ONCE)
        for part in call_each(_good_in_block, blocks[start : start + _AT_ONCE], *shared)
    ]
    everywhere = np.concatenate(parts)[: len(x)]
    everywhere[rows] = good
    return everywhere


def _good_in_block(
    x: Array, y: Array, others: Array, left: Array, odds: Array, thetas: Array, density: MixtureDensity
) -> Array:
    loss, beside = NLELoss(density, x), jnp.log(beside_outliers(y, others, left, jnp)) - odds
    return jax.lax.map(lambda theta: jax.nn.sigmoid(-loss.each(theta) - beside), thetas).mean(axis=0)


def explain_all(
    values: Float[np.ndarray, " n"],
    density: MixtureDensity,
    thetas: Float[np.ndarray, "draws d_theta"],
    x: Float[np.ndarray, "n d_x"],
    rows: Int[np.ndarray, " m"],
    centre: LocationScatter,
) -> Factor:
    """The evidence for the factor of every observation, compared with those in `rows`: in cells, and in blocks."""
    own, some, d = np.zeros(len(x)), x[rows], x.shape[1]
    own[rows] = 1
    axes = revealing_axes(density, thetas, some, centre) if d > JOINT else None
    lines, tail = _by_cells(density, thetas, x, some, centre, axes), Tail.of(density, thetas, x)
    several = 0 if axes is None else len(axes)
    views, spread = view_columns(d, several), spreads(d, several)
    step, factors = _AT_ONCE * _ROWS, []
    for start in range(0, len(x), step):
        mine = slice(start, start + step)
        found = [(others[:, index[mine]], model[:, index[mine]]) for others, model, index in lines]
        if 1 < d <= JOINT:
            found.insert(0, _together(density, thetas, x[mine], some, centre))
        others, model = (np.stack(parts) for parts in zip(*found, strict=True))
        observed = Smoothed(np.maximum(others - own[mine], 0), len(some) - 1, views, spread)
        here = Tail(*(each[mine] for each in tail))
        factors.append(Factor.explained(values[mine], observed, observed.total * model, here))
    return Factor(*(np.concatenate(parts) for parts in zip(*factors, strict=True)))


def _by_cells(
    density: MixtureDensity,
    thetas: np.ndarray,
    x: np.ndarray,
    some: np.ndarray,
    centre: LocationScatter,
    axes: np.ndarray | None,
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each column and axis: the kernel sums of observations and model in its cells, and each observation's cell."""
    found, at, first = [], [], int(1 < x.shape[1] <= JOINT)
    alone = LocationScatter.from_scatter(np.zeros(1), np.eye(1), centre.estimator)
    for line, others in zip(views_of(x, centre, axes)[first:], views_of(some, centre, axes)[first:], strict=True):
        cells = Cells.of(line, alone, min(LEVELS) / _FINER)
        at.append(cells.x[:, 0])
        found.append((kernel_sums(cells.x, others, LEVELS), cells.of_row))
    most = max(map(len, at))
    y = jnp.asarray(np.stack([np.pad(one, (0, most - len(one)), mode="edge") for one in at]))
    places = Places.of(x[:1], centre, LEVELS, axes)
    places = places._replace(joint=y.T) if len(at) == 1 else places._replace(joint=None, lines=y)
    model = expected(density, thetas, places, 1)
    return [(others, one, index) for (others, index), one in zip(found, model, strict=True)]


def _together(
    density: MixtureDensity,
    thetas: np.ndarray,
    x: np.ndarray,
    some: np.ndarray,
    centre: LocationScatter,
) -> tuple[np.ndarray, np.ndarray]:
    """The kernel sums of observations and model at observations `x`, in all columns together."""
    blocks = np.concatenate([x, np.repeat(x[:1], -len(x) % _ROWS, axis=0)]).reshape(-1, _ROWS, x.shape[1])
    places = [Places.of(block, centre, LEVELS)._replace(lines=None) for block in blocks]
    others = views_of(some, centre)[0]
    parts = call_each(_joint, [(one, others, density, thetas, LEVELS) for one in places])
    sums, model = (np.concatenate(part, axis=1)[:, : len(x)] for part in zip(*parts, strict=True))
    return sums, model


def _joint(places: Places, x: Array, density: MixtureDensity, thetas: Array, levels: tuple[float, ...]):
    assert places.joint is not None
    model = jax.lax.map(lambda theta: model_at(theta, density, places)[0], thetas).mean(axis=0)
    return joint_sums(places.joint, x, levels), model


def _margin(theta: Float[Array, " d_theta"], density: MixtureDensity, column: Int[Array, ""]) -> tuple[Array, ...]:
    """Log weights, means and variances of one column of the mixture, in the units of x."""
    log_weights, means, covariances = density.mixture(density.scale_theta(theta))
    scale, centre = density.scale_x.scale[column], density.scale_x.centre[column]
    return log_weights, centre + scale * means[:, column], scale**2 * covariances[:, column, column]


def _banished(
    x: Float[np.ndarray, "m d_x"], which: Bool[np.ndarray, " m"], centre: LocationScatter
) -> Float[np.ndarray, "m d_x"]:
    """A copy of `x` with some rows moved so far away, to both sides, that a robust estimator leaves them out.

    Dropping the rows would give data sets of many sizes, and each size would have to be compiled.
    """
    side = np.where(np.cumsum(which) % 2 == 0, _AWAY, -_AWAY)[:, None]
    return np.where(which[:, None], centre.location + side * np.sqrt(np.diagonal(np.asarray(centre.scatter))), x)
