"""Losses of observations with missing cells: each observation is compared in the columns that it has.

A Gaussian mixture has margins in closed form, smoothed or not, so no imputation is needed. Rows with the same columns
share a margin, a part of location and scatter, and a weight for this number of columns. Margins with the same number of
columns are computed together, padded to the same number of rows: one program per number of columns, not per pattern.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import Loss, NLELoss, NSMSetting
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import MarginalMixture, MixtureDensity
from nsmbayes.weights import Constant, Weighting

_FEWEST = 8  # patterns are padded to at least this many rows, over which the radii of the noise rules are spread
_SEEDS = 100_000  # distance between the seeds of patterns


class Pattern(NamedTuple):
    """The rows that have values in the same columns."""

    columns: Int[np.ndarray, " k"]
    rows: Int[np.ndarray, " m"]


def patterns(x: Float[np.ndarray, "n d_x"]) -> list[Pattern]:
    """The rows of x grouped by which of their cells are not NaN; patterns with many columns first.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.losses.missing import patterns
        >>> [(p.columns.tolist(), p.rows.tolist()) for p in patterns(np.array([[1.0, 2], [np.nan, 3], [4, 5]]))]
        [([0, 1], [0, 2]), ([1], [1])]
    """
    masks, of_row = np.unique(~np.isnan(x), axis=0, return_inverse=True)
    found = [Pattern(np.flatnonzero(mask), np.flatnonzero(of_row.ravel() == i)) for i, mask in enumerate(masks)]
    return sorted(found, key=lambda pattern: (-len(pattern.columns), pattern.columns.tolist()))


class MarginalLoss(Loss):
    """The loss of observations with missing cells: each pattern has the loss of its margin of the mixture."""

    base: MixtureDensity
    groups: tuple[Loss, ...]
    """The losses of patterns with the same number of columns, stacked, without their mixture."""
    order: Int[Array, " n"]
    """The index of each observation in the concatenated losses of all groups."""
    multiples: Float[Array, " n"]

    def each(self, theta: Float[Array, " d_theta"]) -> Float[Array, " n"]:
        """The loss of each observation."""

        def of_pattern(part: Any) -> Float[Array, " m"]:
            return eqx.tree_at(_base, part, self.base, is_leaf=lambda node: node is None).each(theta)

        losses = jnp.concatenate([jax.vmap(of_pattern)(group).ravel() for group in self.groups])
        return self.multiples * losses[self.order]

    @double_precision
    def reweighted(self, multiples: Float[np.ndarray, " n"]) -> "MarginalLoss":
        """The loss with the loss of each observation multiplied by `multiples`."""
        return MarginalLoss(self.base, self.groups, self.order, self.multiples * jnp.asarray(multiples))


class MarginalWeighting(Weighting):
    """A weight, location and scatter; the distance of an observation is computed in the columns that it has."""

    def of(self, columns: Int[np.ndarray, " k"]) -> Weighting:
        """The weighting of observations that have only these columns."""
        location, scatter = np.asarray(self.centre.location), np.asarray(self.centre.scatter)
        part = LocationScatter.from_scatter(location[columns], scatter[np.ix_(columns, columns)], self.centre.estimator)
        return Weighting(self.weight.for_columns(len(columns)), part)

    @double_precision
    def at(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """w(x_i) of every row, between 0 and 1."""
        found = np.empty(len(x))
        for columns, rows in patterns(x):
            found[rows] = self.of(columns).at(x[np.ix_(rows, columns)])
        return found


class MarginalSetting(NamedTuple):
    """The loss of NSM-Bayes for observations with missing cells; the loss of NLE if `noise_levels` is None."""

    density: MixtureDensity
    weighting: MarginalWeighting
    noise_levels: tuple[float, ...] | None
    whiten: bool

    @property
    def surrogate(self) -> MixtureDensity:
        """The surrogate of the loss."""
        return self.density

    @classmethod
    def of_nle(cls, density: MixtureDensity) -> "MarginalSetting":
        """The setting of NLE: all observations have the same weight."""
        d_x = len(density.scale_x.scale)
        centre = LocationScatter.from_scatter(np.zeros(d_x), np.eye(d_x), "sample")
        return cls(density, MarginalWeighting(Constant(), centre), None, False)

    @double_precision
    def loss(self, x: Float[np.ndarray, "n d_x"], *, rules: int = 1, seed: int = 0) -> MarginalLoss:
        """The loss on observations `x`, with NaN for missing cells."""
        order, groups, start = np.empty(len(x), dtype=int), [], 0
        for alike in _together(patterns(x), one_by_one=self.noise_levels is not None):
            size = max(_FEWEST, *(len(pattern.rows) for pattern in alike))
            parts = []
            for pattern in alike:
                rows = np.resize(pattern.rows, size)  # repeated up to this size
                own = seed + _SEEDS * (1 + start)  # so that the errors of the patterns' noise rules are independent
                part = self._part(pattern.columns, x[np.ix_(rows, pattern.columns)], rules, own)
                parts.append(eqx.tree_at(_base, part, None))
                order[pattern.rows] = start + np.arange(len(pattern.rows))
                start += size
            groups.append(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts))
        return MarginalLoss(self.density, tuple(groups), jnp.asarray(order), jnp.ones(len(x)))

    def _part(self, columns: Int[np.ndarray, " k"], cells: Float[np.ndarray, "m k"], rules: int, seed: int) -> Loss:
        margin = MarginalMixture.of(self.density, columns)
        if self.noise_levels is None:
            return NLELoss(margin, jnp.asarray(cells))
        setting = NSMSetting.of(margin, self.weighting.of(columns), self.noise_levels, whiten=self.whiten)
        return setting.loss(cells, rules=rules, seed=seed)


def _together(found: list[Pattern], *, one_by_one: bool) -> Iterator[list[Pattern]]:
    """Patterns grouped by number of columns; those of one column separately if `one_by_one`, for their own lattices."""
    for k in sorted({len(pattern.columns) for pattern in found}, reverse=True):
        alike = [pattern for pattern in found if len(pattern.columns) == k]
        yield from ([pattern] for pattern in alike) if k == 1 and one_by_one else [alike]


def _base(loss: Any) -> Any:
    return loss.surrogate.base
