"""Which observations are more than the model explains: model and factor are fitted in turn, cheaply.

The model is fitted by the likelihood, in which an observation counts less by the factor that the last fit has left it,
and if it is so far out that no noise level of the loss would see it (weighted likelihood). A likelihood costs a
fraction of a score-matching loss with noise, and a few dozen draws are enough. There can be several fixed points, so
that several fits are tried, and the one that explains most of the data is taken.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsmbayes._internal.parallel import call_each, map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.waiting import stage
from nsmbayes.losses import NLELoss
from nsmbayes.losses.cells import Cells
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import search
from nsmbayes.samplers.recounted import Recounted, losses_at
from nsmbayes.samplers.students import log_sum_exp
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import MixtureDensity
from nsmbayes.weights import PlateauIMQ, Weight, Weighting, overall_many
from nsmbayes.weights.accounts import Account
from nsmbayes.weights.excess import (
    JOINT,
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

MOST = 1000
"""Observations that the model is fitted to; of more, a random subset."""
_DRAWS = 60  # of the parameter, over which the model is averaged
_SETTLED = 0.05  # change of a factor below which a round was the last
_RIVAL, _APART = 2.0, 3  # nats by which another fit may be worse and still be mentioned, and rows on which they differ
_WORSE = 3.0  # nats by which a fit in a new frame may be worse and still replace the old one
_DOUBT = 0.3  # share of observations that the search for a start leaves to their neighbours
_KEPT, _MAJORITY = 0.5, 0.55  # factor above which an observation counts for location and scatter, if so many do
_AWAY, _MOST = 1e4, 1e6  # scales, and nats
_FINER = 4  # times as fine as those of the loss are cells: what is found in them changes fast with the place
_ROWS, _AT_ONCE = 1000, 16  # observations that are compared in one compiled call, and such calls at once
_TIGHT = PlateauIMQ(radius=1.0, zeta=1.0, cutoff_radius=2.5, columns=1)

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
    rounds: int
    settled: bool
    """Whether the last round has changed no factor by more than 0.05."""
    disputed: bool
    """Whether a fit that distrusts other observations explains almost as much of the data."""

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
        values = self.factor.values
        several = int((values < _KEPT).sum())
        said = f"{several:,} of {len(values):,} observations are more than the model explains and count less than half."
        if not several:
            said = "No observation is distrusted for the number of those like it."
        if not self.settled:
            said += f" Model and weights had not settled after {self.rounds} rounds."
        if self.disputed:
            said += " A fit that distrusts others explains almost as much of the data."
        return said


class _Fit(NamedTuple):
    factor: Factor
    near: np.ndarray
    posterior: Recounted
    nats: float
    rounds: int
    settled: bool
    by_distance: bool


@double_precision
def find_suspects(
    excess: Excess,
    prior: UnconstrainedPrior,
    density: MixtureDensity,
    x: Float[np.ndarray, "n d_x"],
    weight: Weight,
    fit_centre: FitCentre,
    seed: int,
) -> Suspects:
    """The factor of every observation, for the model that explains most of the data.

    Three fits are tried: of the observations in the middle of the data, weighted by distance; from there on without
    such weights, since they take genuine tails away; and from the parameter that explains the observations best if
    some are left to their neighbours.
    """
    stage("which observations are too many?")
    rows = np.sort(np.random.default_rng([seed, len(x)]).permutation(len(x))[:MOST])
    some = x[rows]
    own = np.arange(len(some))

    def counts_of(centre: LocationScatter, *, by_distance: bool) -> np.ndarray:
        """What observations count whatever their number; with their distance from the bulk, or only if very far."""
        overall = np.asarray(overall_many(weight, centre, jnp.asarray(some)))
        return overall * Weighting(weight, centre).at(some) ** 2 if by_distance else overall

    def settle(centre: LocationScatter, near: np.ndarray, posterior: Recounted, *, by_distance: bool) -> _Fit:
        """From draws of some model: factor, model, factor, and so on."""
        observed, places = smoothed(some, some, centre, excess.levels, own), Places.of(some, centre, excess.levels)
        counts = counts_of(centre, by_distance=by_distance)
        last, done = np.ones(len(some)), 0
        while True:
            thetas = constrain_rows(prior, near)
            if x.shape[1] > JOINT:
                axes = revealing_axes(density, thetas, some, centre)
                observed = smoothed(some, some, centre, excess.levels, own, axes)
                places = Places.of(some, centre, excess.levels, axes)
            lambdas = expected(density, thetas, places, observed.total)
            factor, done = excess.factor(observed, lambdas, Tail.of(density, thetas, some)), done + 1
            settled = bool(np.abs(factor.values - last).max() < _SETTLED)
            near = posterior.draws(counts * factor.values, count=_DRAWS)
            if settled or done == excess.rounds:
                all_counts = counts_of(centre, by_distance=False) * factor.values
                nats = accounted(posterior.draws(all_counts, count=_DRAWS) if by_distance else near, factor.values)
                return _Fit(factor, near, posterior, nats, done, settled, by_distance)
            last = factor.values

    def accounted(near: np.ndarray, kept: np.ndarray) -> float:
        """How well all observations are accounted for by a model and what it leaves out, in nats."""
        logs = -losses_at(near, prior, loss)[1].clip(-_MOST, _MOST)
        return account.nats(log_sum_exp(logs, axis=0) - np.log(len(near)), kept)

    centre = fit_centre(some)
    account = Account.of(some, centre)
    loss = NLELoss(density, jnp.asarray(some))
    found = search(prior, _unaccounted, 0, loss, jnp.asarray(account.log_beside))
    tight = Weighting(_TIGHT.for_columns(x.shape[1]), centre).at(some) ** 2
    of_middle, of_found = (Recounted(prior, loss, seed=seed) for _ in range(2))
    middle = settle(centre, of_middle.draws(tight, count=_DRAWS), of_middle, by_distance=True)
    fits = [
        middle,
        settle(centre, middle.near, of_middle, by_distance=False),
        settle(centre, np.asarray(prior.unconstrain(jnp.asarray(found)))[None], of_found, by_distance=False),
    ]
    best = max(fits, key=lambda fit: fit.nats)
    disputed = any(_apart(best, fit) for fit in fits if fit.nats > best.nats - _RIVAL)
    kept = best.factor.values > _KEPT
    if _MAJORITY * len(some) < kept.sum() < len(some):
        other = fit_centre(_banished(some, ~kept, centre))
        again = settle(other, best.near, best.posterior, by_distance=best.by_distance)
        if again.nats > best.nats - _WORSE:
            centre, best = other, again
    if len(x) > len(some):
        thetas = constrain_rows(prior, best.near[::3])
        best = best._replace(factor=factor_of_all(excess, density, thetas, x, rows, centre))
    theta = constrain_rows(prior, best.near)
    return Suspects(best.factor, centre, best.near, density, theta, best.rounds, best.settled, disputed)


def _apart(one: _Fit, other: _Fit) -> bool:
    """Whether two fits distrust different observations."""
    return bool((np.abs(one.factor.values - other.factor.values) > _KEPT).sum() >= _APART)


def factor_of_all(
    excess: Excess,
    density: MixtureDensity,
    thetas: Float[np.ndarray, "draws d_theta"],
    x: Float[np.ndarray, "n d_x"],
    rows: Int[np.ndarray, " m"],
    centre: LocationScatter,
) -> Factor:
    """The factor of every observation, compared with those in `rows`; columns by cells, all together in blocks."""
    own, some, d = np.zeros(len(x)), x[rows], x.shape[1]
    own[rows] = 1
    axes = revealing_axes(density, thetas, some, centre) if d > JOINT else None
    lines, tail = _by_cells(excess, density, thetas, x, some, centre, axes), Tail.of(density, thetas, x)
    several = 0 if axes is None else len(axes)
    views, spread = view_columns(d, several), spreads(d, several)
    step, factors = _AT_ONCE * _ROWS, []
    for start in range(0, len(x), step):
        mine = slice(start, start + step)
        found = [(others[:, index[mine]], model[:, index[mine]]) for others, model, index in lines]
        if 1 < d <= JOINT:
            found.insert(0, _together(excess, density, thetas, x[mine], some, centre))
        others, model = (np.stack(parts) for parts in zip(*found, strict=True))
        observed = Smoothed(np.maximum(others - own[mine], 0), len(some) - 1, views, spread)
        factors.append(excess.factor(observed, observed.total * model, Tail(*(each[mine] for each in tail))))
    return Factor(*(np.concatenate(parts) for parts in zip(*factors, strict=True)))


def _by_cells(
    excess: Excess,
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
        cells = Cells.of(line, alone, min(excess.levels) / _FINER)
        at.append(cells.x[:, 0])
        found.append((kernel_sums(cells.x, others, excess.levels), cells.of_row))
    most = max(map(len, at))
    y = jnp.asarray(np.stack([np.pad(one, (0, most - len(one)), mode="edge") for one in at]))
    places = Places.of(x[:1], centre, excess.levels, axes)
    places = places._replace(joint=y.T) if len(at) == 1 else places._replace(joint=None, lines=y)
    model = expected(density, thetas, places, 1)
    return [(others, one, index) for (others, index), one in zip(found, model, strict=True)]


def _together(
    excess: Excess,
    density: MixtureDensity,
    thetas: np.ndarray,
    x: np.ndarray,
    some: np.ndarray,
    centre: LocationScatter,
) -> tuple[np.ndarray, np.ndarray]:
    """What observations and model add at observations `x` in all columns together."""
    blocks = np.concatenate([x, np.repeat(x[:1], -len(x) % _ROWS, axis=0)]).reshape(-1, _ROWS, x.shape[1])
    places = [Places.of(block, centre, excess.levels)._replace(lines=None) for block in blocks]
    others = views_of(some, centre)[0]
    parts = call_each(_joint, [(one, others, density, thetas, excess.levels) for one in places])
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


def _unaccounted(
    u: Float[Array, " d"], prior: UnconstrainedPrior, loss: NLELoss, beside: Float[Array, " n"]
) -> Float[Array, ""]:
    """Minus the log likelihood of a parameter that leaves a share of the observations to their neighbours."""
    logs = jnp.log1p(-_DOUBT) - loss.each(prior.constrain(u))
    total = jnp.logaddexp(logs, jnp.log(_DOUBT) + beside).sum()
    return jnp.where(jnp.isnan(total), jnp.inf, -total)


def _banished(
    x: Float[np.ndarray, "m d_x"], which: Bool[np.ndarray, " m"], centre: LocationScatter
) -> Float[np.ndarray, "m d_x"]:
    """Observations of which some are moved so far away, to both sides, that a robust estimator leaves them out.

    To drop them would give data sets of many sizes, and every size is compiled.
    """
    side = np.where(np.cumsum(which) % 2 == 0, _AWAY, -_AWAY)[:, None]
    return np.where(which[:, None], centre.location + side * np.sqrt(np.diagonal(np.asarray(centre.scatter))), x)
