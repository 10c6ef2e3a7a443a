"""Bounds of the loss of an observation of one column, for all its values: the line is divided into cells with bounds.

At each noise level an observation y is counted at the 17 nearest points t_j of a lattice, by p_j ~ exp(-(t_j - y)^2 /
2 h^2). So its loss depends on the surrogate only at these points, and on y through the p_j, which are explicit: with
g(y) = sum_j p_j f(t_j) and moments under p,

    g' = Cov(f, t) / h^2,    g'' = Cov(f, (t - E t)^2) / h^4,   |g''| <= sd(f) sd((t - E t)^2) / h^4.

Cells end where the 17 points change, at any level; in a cell no p_j grows by more than a factor of exp(8 |y - y'| / h).
The bounds use no properties of the surrogate except its values at the lattice points.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from nsmbayes.losses import NSMLoss, NSMSetting
from nsmbayes.losses.noise_levels import lattice_offsets, lattice_step
from nsmbayes.robustness.bounds.rounding import wider
from nsmbayes.weights import Weight

FOURTH = 1.45
"""Upper bound of sd((t - E t)^2) / h^2, for any y between lattice points (tested); sqrt(2) without a lattice."""
_SPAN = 8.0  # from the first to the last of the lattice points of an observation, in noise levels
_MOST_CELLS = 6000
_ROUNDING = 1e-12  # rounding error of sums of a few hundred numbers, relative to their size

AtPoints = Callable[[NSMLoss], Float[np.ndarray, "draws n"]]


class Cells(NamedTuple):
    """Intervals of the line, each within one piece on which the lattice points of an observation do not change."""

    piece: Int[np.ndarray, " cells"]
    low: Float[np.ndarray, " cells"]
    high: Float[np.ndarray, " cells"]

    def split(self, parts: int) -> "Cells":
        """Split each cell into equal parts."""
        ends = self.low[:, None] + (self.high - self.low)[:, None] * np.linspace(0, 1, parts + 1)
        ends[:, -1] = self.high
        return Cells(np.repeat(self.piece, parts), ends[:, :-1].ravel(), ends[:, 1:].ravel())

    def of(self, some: np.ndarray) -> "Cells":
        """Select some of the cells."""
        return Cells(*(each[some] for each in self))


class Places(NamedTuple):
    """Losses of observations in cells of the line, at each of several parameters: within `radius` of `middle`."""

    middle: Float[np.ndarray, "cells draws"]
    radius: Float[np.ndarray, "cells draws"]


class Line(NamedTuple):
    """The line up to a distance from the location, with losses f at the lattice points of its pieces."""

    cells: Cells
    """All pieces, as cells."""
    centre: float
    reach: float
    scale: float
    """Location, largest distance covered by pieces, and robust standard deviation, in y."""
    weight: Weight
    h: Float[np.ndarray, " levels"]
    counts: Float[np.ndarray, " levels"]
    """Total quadrature weight of each level."""
    f: Float[np.ndarray, "points draws"]
    points: Int[np.ndarray, "pieces levels near"]
    t: Float[np.ndarray, "pieces levels near"]
    """Indices and positions of the lattice points of an observation in a piece."""

    @classmethod
    def of(cls, setting: NSMSetting, reach: float, at_points: AtPoints) -> "Line":
        """Build the line up to `reach` from the location, in y; the reach is reduced if there are too many pieces.

        `at_points` evaluates a loss, one number for each observation, at the parameters.
        """
        h, offset, basis = np.asarray(setting.noise_levels), *_frame(setting)
        around = setting.weighting.centre
        centre = float((np.asarray(around.location)[0] - offset) / basis)
        scale = float(np.sqrt(np.asarray(around.scatter)[0, 0]) / abs(basis))
        reach = float(min(reach, 0.5 * _MOST_CELLS / (1 / lattice_step(1.0) / h).sum()))
        ends = _ends(h, centre, reach)
        loss = setting.loss(offset + basis * (ends[1:, None] + ends[:-1, None]) / 2)
        points, shape = loss.w2.size, (len(ends) - 1, len(h), len(lattice_offsets()))
        one_each = dataclasses.replace(
            loss,
            node_index=jnp.arange(points)[:, None],
            quadrature_weight=jnp.ones((points, 1)),
            overall=jnp.ones(points),
        )
        index, counts = np.asarray(loss.node_index).reshape(shape), np.asarray(loss.quadrature_weight).reshape(shape)
        cells = Cells(np.arange(len(ends) - 1), ends[:-1], ends[1:])
        f, t = np.ascontiguousarray(at_points(one_each).T), np.asarray(loss.y).ravel()[index]
        weight = setting.weighting.weight
        return cls(cells, centre, reach, scale, weight, h, counts.sum(axis=2).max(axis=0), f, index, t)

    def losses(self, cells: Cells) -> Places:
        """Bound the losses of observations at any position in the cells."""
        y, half = (cells.low + cells.high) / 2, (cells.high - cells.low)[:, None] / 2
        index, t = self.points[cells.piece], self.t[cells.piece]
        p = np.exp(-0.5 * ((t - y[:, None, None]) / self.h[:, None]) ** 2)
        p /= p.sum(axis=2, keepdims=True)
        of_slope = (t - (p * t).sum(axis=2, keepdims=True)) / self.h[:, None] ** 2
        each = self.counts[:, None] * p
        value, slope = self._sums(index, each), self._sums(index, each * of_slope)
        bend, squares = np.zeros_like(value), self.f**2
        for number, level in enumerate(self.h):
            mine = index[:, number], p[:, number]
            square = self._sums(*mine, squares)
            variance = np.maximum(square - self._sums(*mine) ** 2, 0) + _ROUNDING * square
            grown = np.exp(0.5 * _SPAN * half / level)  # square root of the largest growth factor of a p_j
            bend += self.counts[number] * FOURTH / level**2 * grown * np.sqrt(variance)
        rounding = _ROUNDING * self.counts.sum() * np.abs(self.f).max(axis=0)
        radius = half * np.abs(slope) + 0.5 * half**2 * bend + rounding
        low, high = self._overall(cells)
        return Places((high + low) / 2 * value, wider(high * radius + (high - low) / 2 * np.abs(value)))

    def _sums(self, index: np.ndarray, weight: np.ndarray, f: np.ndarray | None = None) -> np.ndarray:
        """sum_j weight_ij f(index_ij) for each cell i."""
        index, weight = index.reshape(len(index), -1), weight.reshape(len(weight), -1)
        starts = np.arange(0, index.size + 1, index.shape[1])
        f = self.f if f is None else f
        return sparse.csr_array((weight.ravel(), index.ravel(), starts), shape=(len(index), len(f))) @ f

    def _overall(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest overall weight in each cell; the weight decreases with the distance."""
        ends = np.stack([cells.low, cells.high]) - self.centre
        far = np.abs(ends).max(axis=0)
        near = np.where((ends[0] <= 0) & (ends[1] >= 0), 0.0, np.abs(ends).min(axis=0))
        r = np.concatenate([far, near]) / self.scale
        padded = np.pad(r, (0, (1 << (len(r) - 1).bit_length()) - len(r)))  # few shapes are compiled
        low, high = np.split(np.asarray(jax.vmap(self.weight.overall)(jnp.asarray(padded)))[: len(r), None], 2)
        return low, wider(high)


def _frame(setting: NSMSetting) -> tuple[float, float]:
    """Offset and basis of one column."""
    return float(np.asarray(setting.frame.offset)[0]), float(np.asarray(setting.frame.basis)[0, 0])


def _ends(h: Float[np.ndarray, " levels"], centre: float, reach: float) -> Float[np.ndarray, " ends"]:
    """Positions where the lattice points of an observation change, at any level: halfway between two points."""
    low, high = centre - reach, centre + reach
    found = [np.array([low, high])]
    for step in map(lattice_step, h):
        found.append(step * (np.arange(np.floor(low / step), np.ceil(high / step) + 1) + 0.5))
    ends = np.unique(np.concatenate(found))
    ends = ends[(ends >= low) & (ends <= high)]
    return ends[np.append(True, np.diff(ends) > 1e-12 * (reach + abs(centre)))]
