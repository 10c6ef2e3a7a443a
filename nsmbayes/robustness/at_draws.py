"""How far one observation, wherever it lies, can move a posterior: a bound over all places, at the draws.

With l the loss of an observation, replacing x_j by x turns the posterior p into one proportional to p e^-A,
A(theta) = beta (l(x, theta) - l(x_j, theta)), and KL(p || p e^-A) = log E e^-A + E A. A bound for all theta, as
Theorem 2 has it, is decided by parameters that the data exclude. Here l(x, theta) is bounded for all x at each of the
draws, and the expectations are averages over them: for the distribution that the draws make up this is a proof, for
the posterior itself an estimate, whose standard error is known.

In one column the line is cut into cells (`bounds.line_places`), which leaves next to nothing to the bound. In several
columns, and beyond the last cell, the loss is bounded by the components of the mixture at the draw
(`bounds.components`).
"""

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses import NSMLoss, NSMSetting
from nsmbayes.losses.interpolated import RowLosses, coefficients_at
from nsmbayes.posteriors import AmortisedPosterior, GeneralisedPosterior
from nsmbayes.priors import constrain_rows
from nsmbayes.robustness.bounds.components import Components, LossRange, combination_range, mixture_range
from nsmbayes.robustness.bounds.growth import Metric
from nsmbayes.robustness.bounds.line_places import Cells, Line
from nsmbayes.robustness.bounds.rounding import up, wider
from nsmbayes.robustness.bounds.weights import WeightBounds
from nsmbayes.robustness.certificate import AtDraws
from nsmbayes.samplers import Compression, each_loss
from nsmbayes.surrogates import MixtureDensity

_DRAWS, _FEWER, _FEWEST = 500, 200, 100  # in one column, in several, and of many observations
_ROW_LOSSES = 500_000  # draws times observations, as far as the fewest draws allow
_MOST_ROWS = 5000  # observations, each of which may be the one that is replaced
_ROWS = 500  # of them at once
_SHIFTS = 5e9  # products for the shifts of means, at most
_BEYOND, _LEAST = 10.0, 20.0  # cells reach so far beyond the radii of the weight, and at least so far
_NEAREST = 4.25  # noise levels from an observation to the farthest of its lattice points
_FAR = 1e5  # noise levels from the origin up to which lattices are used here
_TINY = 1e-200
_ROUNDS, _PARTS, _CLOSE = 4, 4, 1.02  # cells whose bound is so much above what is found are split into parts
_MOST_SPLIT = 6000


class _Places(NamedTuple):
    """Sets of places of an observation, in each of which beta times its loss lies between `low` and `high`."""

    low: Float[np.ndarray, "sets draws"]
    high: Float[np.ndarray, "sets draws"]

    def joined(self, other: "_Places") -> "_Places":
        """These and others."""
        return _Places(*map(np.concatenate, zip(self, other, strict=True)))


@double_precision
@np.errstate(all="ignore")  # a bound that overflows is infinite or NaN, and then there is none
def influence_at_draws(
    posterior: GeneralisedPosterior, losses: list[NSMLoss], weight: WeightBounds, metrics: list[Metric]
) -> AtDraws | None:
    """The bounds for a posterior of NSM-Bayes with a mixture; None if there are none.

    `losses` have the rules by which noise is added to the observations, `metrics` are those of the noise levels.

    Where an observation counts a multiple of its loss, as where some are too many, the bound of the KL divergence holds
    for every multiple from 0 to 1: it is convex in it, and without the observation it is as if that were far away.
    """
    setting, n = posterior.setting, posterior.n
    if not (isinstance(setting, NSMSetting) and isinstance(setting.surrogate, MixtureDensity)):
        return None
    if n > _MOST_ROWS or isinstance(posterior.compression, Compression):
        return None
    most = _DRAWS if _on_lattices(setting) else _FEWER
    positions = posterior.thinned(max(_FEWEST, min(most, _ROW_LOSSES // n)))
    theta = constrain_rows(posterior.target.prior, positions)
    rows = posterior.beta * posterior.row_losses(positions, np.arange(n))
    if not np.isfinite(rows).all():
        return None
    effective = min(float(len(theta)), float(np.min(posterior.result.ess_bulk)))
    plus, minus = _rules(losses, metrics, n)
    if not _on_lattices(setting):
        ranges = _ranges(posterior, theta, weight, metrics, [0.0] * len(metrics))
        high = wider(posterior.beta * (ranges.high @ plus.T + ranges.low @ minus.T))
        low = wider(posterior.beta * (ranges.low @ plus.T + ranges.high @ minus.T))
        kl, error = _largest_by_row(-low, high, rows, effective)
        return AtDraws(up(kl), error, None) if math.isfinite(kl) else None
    line = Line.of(setting, _scale(setting) * _reach(setting), lambda loss: _at_points(posterior, loss, positions))
    beyond = [max(0.0, (line.reach - _NEAREST * at.level) / at.stretch) for at in metrics]
    ranges = _ranges(posterior, theta, weight, metrics, beyond)
    counts = float(setting.weighting.weight.overall(jnp.asarray(line.reach / line.scale))) * plus.max(axis=0)
    low, high = (wider(posterior.beta * each @ counts)[None] for each in ranges)
    places = _Places(-low, high).joined(_cells(line, posterior.beta, rows))
    if not (np.isfinite(places.low).all() and np.isfinite(places.high).all()):
        return None
    kl, error = _largest(places, rows, effective)
    standard = (theta - theta.mean(axis=0)) / np.maximum(theta.std(axis=0), _TINY)
    cheap = places.low.size * n * theta.shape[1] <= _SHIFTS
    shift = _largest_shift(places, rows, standard) if cheap else math.inf
    return AtDraws(up(kl), error, up(shift) if math.isfinite(shift) else None) if math.isfinite(kl) else None


def _on_lattices(setting: NSMSetting) -> bool:
    """Whether noise is added on lattices, and points are not so far from their origin that it is not."""
    h, [first, *others] = setting.noise_levels[0], np.asarray(setting.weighting.centre.location)
    if others or h == 0:
        return False
    origin = (first - np.asarray(setting.frame.offset)[0]) / np.asarray(setting.frame.basis)[0, 0]
    return bool(abs(origin) + _reach(setting) * _scale(setting) < _FAR * h)


def _scale(setting: NSMSetting) -> float:
    """The robust standard deviation of observations of one column, in y."""
    variance = np.asarray(setting.weighting.centre.scatter)[0, 0]
    return float(np.sqrt(variance) / abs(np.asarray(setting.frame.basis)[0, 0]))


def _reach(setting: NSMSetting) -> float:
    """The distance up to which the line is cut into cells: beyond it the weight is small."""
    weight = setting.weighting.weight
    radii = (getattr(weight, "radius", 0.0), getattr(weight, "cutoff_radius", None) or 0.0)
    return max(_LEAST, _BEYOND + max(radii))


def _at_points(
    posterior: GeneralisedPosterior, loss: NSMLoss, positions: Float[np.ndarray, "draws d"]
) -> Float[np.ndarray, "draws n"]:
    """A loss of other observations at the draws, with the scores that the posterior's own loss has."""
    if not isinstance(posterior, AmortisedPosterior):
        return each_loss(posterior.target._replace(loss=loss), positions)
    interpolation = posterior.summarised.loss.interpolation
    theta = constrain_rows(posterior.target.prior, positions)
    return RowLosses.of(interpolation, loss).at_many(coefficients_at(interpolation, theta))


def _ranges(
    posterior: GeneralisedPosterior,
    theta: Float[np.ndarray, "draws d"],
    weight: WeightBounds,
    metrics: list[Metric],
    beyond: list[float],
) -> LossRange:
    """The range of the loss of a point at each draw and level, (draws, levels), `beyond` a distance at each level."""
    setting = posterior.setting
    assert isinstance(setting, NSMSetting)
    assert isinstance(setting.surrogate, MixtureDensity)
    where = setting.surrogate, setting.frame, np.asarray(setting.weighting.centre.location)
    if isinstance(posterior, AmortisedPosterior):
        interpolation = posterior.summarised.loss.interpolation
        references = Components.of(*where, np.asarray(interpolation.references))
        c = coefficients_at(interpolation, theta) / np.asarray(interpolation.sizes)
        found = [
            combination_range(references.at_level(at, weight, r), c[:, number])
            for number, (at, r) in enumerate(zip(metrics, beyond, strict=True))
        ]
    else:
        own = Components.of(*where, theta)
        found = [mixture_range(own.at_level(at, weight, r)) for at, r in zip(metrics, beyond, strict=True)]
    return LossRange(*(np.stack(each, axis=1) for each in zip(*found, strict=True)))


def rule_weights(
    loss: NSMLoss, levels: Float[np.ndarray, " levels"]
) -> tuple[Float[np.ndarray, "n levels"], Float[np.ndarray, "n levels"]]:
    """What each observation counts at each level: the sums of positive and of negative quadrature weights there."""
    index, weight = np.asarray(loss.node_index), np.asarray(loss.quadrature_weight)
    level_of = np.broadcast_to(np.asarray(loss.h), loss.y.shape[:2]).ravel()[index]
    plus, minus = (
        np.stack([np.where(level_of == h, part, 0).sum(axis=1) for h in levels], axis=1)
        for part in (np.maximum(weight, 0), np.maximum(-weight, 0))
    )
    return wider(plus), wider(minus)


def _rules(
    losses: list[NSMLoss], metrics: list[Metric], n: int
) -> tuple[Float[np.ndarray, "_ levels"], Float[np.ndarray, "_ levels"]]:
    """The weights of the rule of each observation; where not all of them are at hand, one row for the worst of each."""
    found = [rule_weights(loss, np.array([at.level for at in metrics])) for loss in losses]
    plus, minus = (np.concatenate(each) for each in zip(*found, strict=True))
    if len(losses) == 1 and len(plus) >= n:
        return plus[:n], minus[:n]
    return plus.max(axis=0, keepdims=True), minus.max(axis=0, keepdims=True)


def _cells(line: Line, beta: float, rows: Float[np.ndarray, "draws n"]) -> _Places:
    """The line in cells: those whose bound is above what their middles say are split, as long as that helps."""

    def places(cells: Cells) -> _Places:
        found = line.losses(cells)
        return _Places(beta * (found.middle - found.radius), beta * (found.middle + found.radius))

    cells = line.cells
    found, kept = places(cells), []
    best = 0.0
    for _ in range(_ROUNDS):
        middle = (found.low + found.high) / 2
        best = max(best, float(_by_place(_Places(middle, middle), rows)[0].max()))
        wide = _by_place(found, rows)[0] > _CLOSE * best
        if not wide.any() or _PARTS * wide.sum() > _MOST_SPLIT:
            break
        kept.append(_Places(found.low[~wide], found.high[~wide]))
        cells = cells.of(wide).split(_PARTS)
        found = places(cells)
    return functools.reduce(_Places.joined, kept, found)


def _by_place(places: _Places, rows: Float[np.ndarray, "draws n"]) -> tuple[np.ndarray, np.ndarray]:
    """The largest bound of log E e^(row - place) + E (place - row) over the rows, for each place, and of which row."""
    least = places.low.min(axis=1, keepdims=True)
    tilts, means = np.exp(least - places.low), places.high.mean(axis=1, keepdims=True) - least
    worst, which = np.full(len(tilts), -np.inf), np.zeros(len(tilts), int)
    for start in range(0, rows.shape[1], _ROWS):
        some = rows[:, start : start + _ROWS]
        most = some.max(axis=0)
        # what underflows is less than _TINY; a row and a place so far apart would have an enormous bound anyway
        kl = np.log(tilts @ np.exp(some - most) / len(rows) + _TINY) + means + most - some.mean(axis=0)
        row = kl.argmax(axis=1)
        kl = kl[np.arange(len(kl)), row]
        worst, which = np.where(kl <= worst, (worst, which), (kl, start + row))
    return worst, which.astype(int)


def _largest(places: _Places, rows: Float[np.ndarray, "draws n"], effective: float) -> tuple[float, float]:
    """The largest of these bounds, over all places, and its standard error."""
    worst, which = _by_place(places, rows)
    place = int(worst.argmax())
    return float(worst[place]), _error(places.low[place], places.high[place], rows[:, which[place]], effective)


def _largest_by_row(
    low: Float[np.ndarray, "draws n"],
    high: Float[np.ndarray, "draws n"],
    rows: Float[np.ndarray, "draws n"],
    effective: float,
) -> tuple[float, float]:
    """The same where each row has bounds of its own: those of all places, by the row's rule for the noise."""
    change = rows - low
    most = change.max(axis=0)
    kl = np.log(np.exp(change - most).mean(axis=0)) + most + (high - rows).mean(axis=0)
    row = int(kl.argmax())
    low, high = (np.broadcast_to(each, rows.shape)[:, row] for each in (low, high))
    return float(kl[row]), _error(low, high, rows[:, row], effective)


def _error(
    low: Float[np.ndarray, " draws"], high: Float[np.ndarray, " draws"], row: Float[np.ndarray, " draws"], count: float
) -> float:
    """The standard error of log E e^(row - low) + E (high - row), by its derivative in the draws' distribution."""
    tilt = np.exp(row - low - (row - low).max())
    return float(np.std(tilt / tilt.mean() + high - row) / math.sqrt(count))


def _largest_shift(
    places: _Places, rows: Float[np.ndarray, "draws n"], standard: Float[np.ndarray, "draws d"]
) -> float:
    """The largest |E z e^(row - place)| / E e^(row - place), over places, rows and the columns z of `standard`."""
    least = places.low.min(axis=1, keepdims=True)
    large, small = np.exp(least - places.low), np.exp(least - places.high)
    worst = 0.0
    for start in range(0, rows.shape[1], _ROWS):
        tilt = np.exp(rows[:, start : start + _ROWS] - rows[:, start : start + _ROWS].max(axis=0))
        total = np.maximum(small @ tilt, _TINY)
        for z in standard.T:
            above, below = (part[:, None] * tilt for part in (np.maximum(z, 0), np.maximum(-z, 0)))
            up_to = np.maximum(large @ above - small @ below, large @ below - small @ above)
            worst = max(worst, min(float((up_to / total).max()), float(np.abs(z).max())))
    return worst
