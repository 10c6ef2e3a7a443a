"""Which observations are outliers, by a model that may leave each of them to its neighbours.

The likelihood of the model's parameter, in which every observation is a draw of the model or one of the outliers, which
describe one another (`weights.accounts`), is sampled cheaply: it needs the density at the observations alone, which
costs a fraction of a score-matching loss with noise. What an observation counts is the probability that it is a draw of
the model, over all these parameters. Where it is uncertain which rows are outliers, different parameters leave
different rows out, and their spread is wider than that of a likelihood with fixed counts: by `wider`.
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
"""Observations that the model is fitted to; of more, a random subset."""
_DRAWS, _FEWER = 60, 20  # of the parameter, over which the model is averaged, and for more than MOST observations
_KEPT, _MAJORITY = 0.5, 0.55  # factor above which an observation counts for location and scatter, if so many do
_TYPICAL, _NEARLY_ALL = 40, 0.99  # observations that the model draws at each parameter, and how many are within reach
_ALLOWED, _LARGEST = 0.5, 100.0  # power of the ratio of variances, and the largest that is believed
_FEWEST = 5  # effective draws to a parameter, from which on variances are compared
_NOTABLE = 1.1  # times the variance from which on a reader should know
_AWAY, _MOST = 1e4, 1e6  # scales, and nats
_FINER = 4  # times as fine as those of the loss are cells: what is found in them changes fast with the place
_ROWS, _AT_ONCE = 1000, 16  # observations that are compared in one compiled call, and such calls at once

_TIGHT = PlateauIMQ(radius=1.0, zeta=1.0, columns=1)

BY_DISTANCE = "Weights are by distance alone: there is no mixture density with which the data could be compared."
"""What posteriors say where excess was asked for, and could not be found."""

FitCentre = Callable[[Float[np.ndarray, "k d_x"]], LocationScatter]


class Suspects(NamedTuple):
    """What observations count by number, and how that was found."""

    factor: Factor
    centre: LocationScatter
    """Location and scatter of the observations that count."""
    near: Float[np.ndarray, "k d"]
    """Draws of the fitted model, unconstrained: a posterior to begin with."""
    density: MixtureDensity
    theta: Float[np.ndarray, "k d"]
    """The same draws in the space of the prior."""
    wider: float
    """How much larger the variance of the parameter is for not knowing which observations are outliers."""
    reach: float
    """The distance from the location, in the scatter, within which 99 % of the model's own observations lie."""
    explained: bool = True
    """Whether some parameter explains at least half of the observations; otherwise none of them is distrusted."""

    def extended(self, count: int) -> "Suspects":
        """With so many more observations, of which none is distrusted for its number."""
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
        """One or two sentences."""
        if not self.explained:
            return "No parameter was found that explains half of the observations: weights are by distance alone."
        values = self.factor.values
        several = int((values < _KEPT).sum())
        said = f"{several:,} of {len(values):,} observations are more than the model explains and count less than half."
        if not several:
            said = "No observation is distrusted for the number of those like it."
        if self.wider > _NOTABLE:
            said += (
                f" Which observations are outliers is uncertain: that is worth {self.wider - 1:.0%} more variance, "
                "which calibrated learning rates of NSM-Bayes allow for."
            )
        return said


def wider_for(suspects: Suspects | None) -> float:
    """How much larger variances are for not knowing which observations are outliers, if that was asked."""
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
    """What each observation counts: the probability that it is a draw of the model.

    The search begins where a likelihood of the middle of the data is: where no row is explained, the one that knows of
    outliers is flat. Location and scatter are fitted again to those that count by then, if these are most of them.
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
        with suppress(InputError):  # those that count have no regular scatter: that of all rows stays
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
    """What observations count, given the probability that they are good: those that are likely good, a little more.

    Every observation of a tail has some probability to be an outlier, and to count each by it would cost a few percent
    of the data.

    Example:
        >>> sharpened(np.array([0.0, 0.3, 0.5, 0.9, 1.0])).round(3).tolist()
        [0.0, 0.3, 0.5, 0.988, 1.0]
    """
    return np.maximum(good, good**2 / (good**2 + (1 - good) ** 2))


class _Beliefs(NamedTuple):
    """What is believed of the observations, and of the parameter, by a likelihood that knows of outliers."""

    good: Float[np.ndarray, " n"]
    moments: Moments
    near: Float[np.ndarray, "k d"]
    """Some draws of the parameter, unconstrained."""

    @classmethod
    def of(cls, visited: Recounted, account: Account, excess: Excess) -> "_Beliefs":
        d = account.y.shape[1]

        goods = []  # at what is visited, in this order, and at what is not kept before

        def total(losses: Float[np.ndarray, "k n"]) -> Float[np.ndarray, " k"]:
            nats, good = account.explain(-losses.clip(-_MOST, _MOST), cost=excess.cost_in(d), clean=excess.clean)
            goods.append(good)
            return -nats

        population = visited.population(total, rough=False)
        moments = Moments.of(population)
        good = np.clip(moments.weights @ np.concatenate(goods)[-visited.visited :], 0.0, 1.0)
        return cls(good, moments, resample(population, 1.0, _FEWER))

    def wider_than(self, fixed: Moments) -> float:
        """How much larger variances have to be than those of a posterior with fixed counts; at least 1.

        Half of what a normal posterior would need, as a power: what is uncertain is mostly one direction, and to widen
        all of them in full cost more than it gained (docs/excess.md).
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
    """The probability that each observation is good, given that of those in `rows`."""
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
    """The evidence for what every observation counts, compared with those in `rows`: in cells, and in blocks."""
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
    """For each column and axis, what observations and model add in its cells, and the cell of every observation."""
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
    """What observations and model add at observations `x` in all columns together."""
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
    """Observations of which some are moved so far away, to both sides, that a robust estimator leaves them out.

    To drop them would give data sets of many sizes, and every size is compiled.
    """
    side = np.where(np.cumsum(which) % 2 == 0, _AWAY, -_AWAY)[:, None]
    return np.where(which[:, None], centre.location + side * np.sqrt(np.diagonal(np.asarray(centre.scatter))), x)
