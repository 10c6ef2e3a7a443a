"""What an observation of one column adds to the loss, wherever it lies: the line is cut into cells, each with a bound.

At each noise level an observation y is counted at the 17 nearest points t_j of a lattice, by p_j ~ exp(-(t_j - y)^2 /
2 h^2). So its loss depends on the surrogate at these points alone, and on y through the p_j, which are explicit: with
g(y) = sum_j p_j f(t_j) and moments under p,

    g' = Cov(f, t) / h^2,    g'' = Cov(f, (t - E t)^2) / h^4,   |g''| <= sd(f) sd((t - E t)^2) / h^4.

Cells end where the 17 points change, at any level; in a cell no p_j grows by more than a factor of exp(8 |y - y'| / h).
Nothing is asked of the surrogate but its values at the lattice points.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import sparse

from nsmbayes.losses import NSMLoss, NSMSetting
from nsmbayes.losses.noise_levels import lattice_offsets, lattice_step
from nsmbayes.robustness.bounds.rounding import wider
from nsmbayes.weights import overall_many

FOURTH = 1.45
"""sd((t - E t)^2) / h^2 is at most this, wherever y is between lattice points (a test); sqrt(2) without a lattice."""
_SPAN = 8.0  # from the first to the last of the lattice points of an observation, in noise levels
_MOST_CELLS = 6000
_ROUNDING = 1e-12  # of sums of a few hundred numbers, relative to their size

AtPoints = Callable[[NSMLoss], Float[np.ndarray, "draws n"]]


class Places(NamedTuple):
    """The losses of observations in cells of the line, at each of several parameters: within `radius` of `middle`."""

    middle: Float[np.ndarray, "cells draws"]
    radius: Float[np.ndarray, "cells draws"]
    reach: float
    """All places up to this distance from the location, in y, lie in some cell."""


def place_losses(setting: NSMSetting, reach: float, at_points: AtPoints) -> Places:
    """The losses of observations at any y within `reach` of the location; less far, if that were too many cells.

    `at_points` evaluates a loss, one number for each observation, at the parameters.
    """
    h, [offset], [[basis]] = (np.asarray(a) for a in (setting.noise_levels, setting.frame.offset, setting.frame.basis))
    [location] = np.asarray(setting.weighting.centre.location)
    reach = min(reach, 0.5 * _MOST_CELLS / float((1 / lattice_step(1.0) / h).sum()))
    ends = _ends(h, (location - offset) / basis, reach)
    y, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
    loss = setting.loss(offset + basis * y[:, None])
    value, slope, bend, rounding = _around(loss, h, half, at_points)
    radius = half[:, None] * np.abs(slope) + 0.5 * half[:, None] ** 2 * bend + rounding
    # the overall weight falls with the distance, so that in a cell it lies between those of the ends
    overall = np.asarray(overall_many(*setting.weighting, jnp.asarray(offset + basis * ends[:, None])))
    high, low = np.maximum(overall[1:], overall[:-1]), np.minimum(overall[1:], overall[:-1])
    inside = (location - offset) / basis
    high = np.where((ends[:-1] <= inside) & (ends[1:] >= inside), 1.0, high)
    mean, spread = (high + low) / 2, (high - low) / 2
    return Places(mean[:, None] * value, wider(high[:, None] * radius + spread[:, None] * np.abs(value)), float(reach))


def _ends(h: Float[np.ndarray, " levels"], centre: float, reach: float) -> Float[np.ndarray, " ends"]:
    """Where the lattice points of an observation change, at any level: halfway between two of them."""
    low, high = centre - reach, centre + reach
    found = [np.array([low, high])]
    for step in map(lattice_step, h):
        found.append(step * (np.arange(np.floor(low / step), np.ceil(high / step) + 1) + 0.5))
    ends = np.unique(np.concatenate(found))
    ends = ends[(ends >= low) & (ends <= high)]
    return ends[np.append(True, np.diff(ends) > 1e-12 * (reach + abs(centre)))]


def _around(
    loss: NSMLoss, h: Float[np.ndarray, " levels"], half: Float[np.ndarray, " cells"], at_points: AtPoints
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """g in the middle of the cells, its derivative there, a bound of |g''| in the cell, and one of rounding errors."""
    points, shape = loss.w2.size, (len(half), len(h), len(lattice_offsets()))
    one_each = dataclasses.replace(
        loss,
        node_index=jnp.arange(points)[:, None],
        quadrature_weight=jnp.ones((points, 1)),
        overall=jnp.ones(points),
    )
    f = np.ascontiguousarray(at_points(one_each).T)
    index, weight = (np.asarray(a).reshape(shape) for a in (loss.node_index, loss.quadrature_weight))
    totals = weight.sum(axis=2)  # what the levels count
    p, t = weight / totals[..., None], np.asarray(loss.y).ravel()[index]
    by_slope = weight * (t - (p * t).sum(axis=2, keepdims=True)) / h[:, None] ** 2
    value, slope = (_product(index, each, f) for each in (weight, by_slope))
    bend = np.zeros_like(value)
    for number, level in enumerate(h):
        mine = index[:, number], p[:, number]
        square = _product(*mine, f**2)
        variance = square - _product(*mine, f) ** 2 + _ROUNDING * square
        grown = np.exp(0.5 * _SPAN * half / level)  # the root of what a p_j can grow by
        bend += (totals[:, number] * FOURTH / level**2 * grown)[:, None] * np.sqrt(np.maximum(variance, 0))
    return value, slope, bend, _ROUNDING * totals.sum(axis=1).max() * np.abs(f).max(axis=0)


def _product(index: np.ndarray, weight: np.ndarray, f: Float[np.ndarray, "points draws"]) -> np.ndarray:
    """sum_j weight_ij f(index_ij) for each cell i."""
    index, weight = index.reshape(len(index), -1), weight.reshape(len(weight), -1)
    starts = np.arange(0, index.size + 1, index.shape[1])
    return sparse.csr_array((weight.ravel(), index.ravel(), starts), shape=(len(index), len(f))) @ f
