"""Excess: more observations in a region than the fitted model explains; they lose weight, and the reason is reported.

A weight by distance cannot detect a cluster, a stuck sensor or a second population: such observations are not far out,
but there are too many of them. The factor of each observation is the probability that it is a draw of the model and not
an outlier, where outliers are described by one another (`accounts`, `suspects`). To show why an observation loses
weight, the data, smoothed by a Gaussian kernel of width h, are compared with the equally smoothed model. In units of
the kernel's height, let N_h(i) be the kernel sum of the other observations at observation i, and lambda_h(i) its
expected value under the model. Then

    R_h(i) = (1 + N_h(i)) / (1 + lambda_h(i))

is a Pearson residual plus one (Markatou, Basu and Lindsay 1998), for several widths, jointly and column by column. A
lone observation in a tail has R = 1: `tails` decides whether it is too far out.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.scatter import LocationScatter
from nsmbayes.serialisation import registered
from nsmbayes.surrogates import Frame, MixtureDensity
from nsmbayes.weights.tails import Tail

JOINT = 5
"""Up to this many columns, observations are compared with the model jointly: kernels fail in higher dimensions."""
ACROSS = -2
"""The index of a column that stands for a combination of several columns: see `projections`."""
LEVELS = (0.2, 0.4, 0.8, 1.6)
"""Widths of the kernels, in units of the robust scale of the observations."""
_CHANCE, _EXTRA = 3.5, 1.5  # excess attributed to chance: standard deviations, and neighbours
_FAR = 1e6  # in scales: coordinates are clipped there
_BLOCK = 2000  # observations that are compared at once
_HALF = 0.5  # `evidence` calls an observation too far if its tail factor is smaller
_ALIKE = 2.0  # `evidence` speaks of too many if the observed number exceeds the expected one this many times


@registered
@dataclass(frozen=True, kw_only=True)
class Excess:
    """Settings for reducing the weight of observations that are likely outliers.

    Args:
        cost: the cost of each further outlier, in nats, where x has one column: the larger it is, the more likely are
            few outliers compared with many. Each further column adds twice this cost.
        clean: the prior probability that there is no outlier at all.

    Example:
        >>> Excess(cost=1.0).clean
        0.05
    """

    kind: ClassVar[str] = "excess"

    cost: float = 0.2
    clean: float = 0.05

    def __post_init__(self):
        if checks.real(self.cost, "cost") < 0:
            raise InputError(f"`cost` must be at least 0; got {self.cost}.")
        checks.fraction(self.clean, "clean")

    def cost_in(self, d: int) -> float:
        """The cost of each further outlier where x has d columns; more columns make chance look like outliers."""
        return self.cost * (2 * d - 1)


def as_excess(excess: Any) -> Excess | None:
    """Return `excess` if it is an `Excess` or None; raise `InputError` otherwise."""
    return None if excess is None else checks.instance(excess, "excess", Excess, "an nsmbayes.weights.Excess() or None")


class Factor(NamedTuple):
    """The factor of each observation, between 0 and 1, and the evidence for it: where its excess is largest."""

    values: Float[np.ndarray, " n"]
    """The factors."""
    found: Float[np.ndarray, " n"]
    """The kernel sum of the observations at each observation, itself included."""
    expected: Float[np.ndarray, " n"]
    """The expected value of `found` under the model, given the observation itself."""
    column: Int[np.ndarray, " n"]
    """The column with the largest excess, or -1 for all columns together, or -2 for a combination of columns."""
    beyond: Float[np.ndarray, " n"]
    """The number of observations at least as far out that the model predicts."""
    kept: Float[np.ndarray, " n"]
    """The factor that the observation would have for its distance alone."""

    @classmethod
    def explained(
        cls,
        values: Float[np.ndarray, " k"],
        observed: "Smoothed",
        expected: Float[np.ndarray, "views levels k"],
        tail: "Tail",
    ) -> "Factor":
        """The factors `values`, each with the view and width in which the data exceed the model most, beyond chance."""
        ratio = (1 + observed.others) / (1 + expected)
        chance = 1 + (_CHANCE * np.sqrt(expected * observed.spread[:, None, None]) + _EXTRA) / (1 + expected)
        over = np.maximum(ratio - chance, 0).reshape(-1, ratio.shape[2])
        worst = over.argmax(axis=0)
        rows = np.arange(len(worst))
        view = np.where(over[worst, rows] > 0, worst // ratio.shape[1], 0)
        return cls(
            values,
            1 + observed.others.reshape(len(over), -1)[worst, rows],
            1 + expected.reshape(len(over), -1)[worst, rows],
            observed.columns[view],
            *tail,
        )

    def evidence(self, row: int) -> str:
        """The evidence for one observation, in words."""
        where = "" if self.column[row] < 0 else f" in column {self.column[row]}"
        where = " in a combination of columns" if self.column[row] == ACROSS else where
        said = []
        if self.kept[row] < _HALF:
            said.append(f"too far for the model: {self.beyond[row]:.0e} so far out expected")
        if self.found[row] > _ALIKE * self.expected[row]:
            said.append(f"too many{where}: {self.found[row]:.1f} alike, {self.expected[row]:.1f} expected")
        return "; ".join(said) or f"an outlier with probability {1 - self.values[row]:.2f}, by all rows together"


def tied(x: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
    """For each observation, how many share its exact value in some column, itself included; 0 if no other does.

    Example:
        >>> tied(np.array([[4.37], [1.0], [4.37]])).tolist()
        [2, 0, 2]
    """
    counts = np.zeros(len(x), int)
    for column in x.T:
        _, inverse, each = np.unique(column, return_inverse=True, return_counts=True)
        counts = np.maximum(counts, each[inverse.ravel()])
    return np.where(counts > 1, counts, 0)


class Smoothed(NamedTuple):
    """Kernel sums of the data in several views: jointly if columns are few, column by column, and along other axes."""

    others: Float[np.ndarray, "views levels k"]
    """The kernel sum of the other observations at each place, in units of the kernel's height."""
    total: int
    """The number of other observations."""
    columns: Int[np.ndarray, " views"]
    """The column of each view, or -1 for all columns together, or -2 for a combination."""
    spread: Float[np.ndarray, " views"]
    """The variance of such a sum divided by its mean, if the density hardly varies over the kernel."""


def smoothed(
    at: Float[np.ndarray, "k d"],
    x: Float[np.ndarray, "m d"],
    centre: LocationScatter,
    levels: tuple[float, ...],
    own: Int[np.ndarray, " k"] | None = None,
    axes: Float[np.ndarray, "axes d"] | None = None,
) -> Smoothed:
    """The kernel sums of observations `x` at places `at`, also along `axes` if these are given.

    `own` is the index of the observation at each place, or -1 if there is none.
    """
    views = zip(views_of(at, centre, axes), views_of(x, centre, axes), strict=True)
    sums = np.stack([kernel_sums(places, others, levels) for places, others in views])
    if own is not None:
        sums -= own >= 0
    d, several = x.shape[1], 0 if axes is None else len(axes)
    return Smoothed(np.maximum(sums, 0), len(x) - (own is not None), view_columns(d, several), spreads(d, several))


def joint_sums(at: Float[Array, "k d"], x: Float[Array, "m d"], levels: tuple[float, ...]) -> Float[Array, "levels k"]:
    """`kernel_sums` in JAX: one place after another, since the kernels of one place fit into a core's cache."""
    order = sorted(range(len(levels)), key=lambda level: -levels[level])

    def one(y: Float[Array, " d"]) -> Float[Array, " levels"]:
        squares = sum((y[j] - x[:, j]) ** 2 for j in range(x.shape[1]))
        sums, kernel, wider = [jnp.zeros(())] * len(levels), jnp.zeros(()), 0.0
        for level in order:
            h = levels[level]
            kernel = jnp.square(jnp.square(kernel)) if wider == 2 * h else jnp.exp(-0.5 / h**2 * squares)
            sums[level], wider = kernel.sum(), h
        return jnp.stack(sums)

    return jax.lax.map(one, at).T


def spreads(d: int, axes: int = 0) -> Float[np.ndarray, " views"]:
    """The variance of a kernel sum divided by its mean, in each view of d columns."""
    return 2.0 ** (-np.where(view_columns(d, axes) == -1, d, 1) / 2)


def kernel_sums(
    at: Float[np.ndarray, "k p"], x: Float[np.ndarray, "m p"], levels: tuple[float, ...]
) -> Float[np.ndarray, "levels k"]:
    """The sums at places `at` of isotropic Gaussian kernels centred at the rows of `x`, with height 1."""
    sums = np.empty((len(levels), len(at)))
    for start in range(0, len(at), _BLOCK):
        rows = slice(start, start + _BLOCK)
        squares = ((at[rows, None] - x[None]) ** 2).sum(axis=2)
        kernel, wider = np.empty(0), 0.0
        for level, h in sorted(enumerate(levels), key=lambda one: -one[1]):
            # a kernel of half the width is the fourth power, which is cheaper than another exponential
            kernel = np.square(np.square(kernel)) if wider == 2 * h else np.exp(-0.5 * squares / h**2)
            sums[level, rows], wider = kernel.sum(axis=1), h
    return sums


class Places(NamedTuple):
    """Places at which the smoothed model is evaluated, in the coordinates of each view."""

    frame: Frame
    joint: Float[Array, "k d"] | None
    lines: Float[Array, "lines k"] | None
    """Places in each column, and along other axes."""
    axes: Float[Array, "lines d"]
    """Columns, and other axes, of unit length in the scatter."""
    levels: Float[Array, " levels"]

    @classmethod
    @double_precision
    def of(
        cls,
        at: Float[np.ndarray, "k d"],
        centre: LocationScatter,
        levels: tuple[float, ...],
        axes: Float[np.ndarray, "axes d"] | None = None,
    ) -> "Places":
        """The places of observations `at`, for the kernels of `smoothed`."""
        views, d = views_of(at, centre, axes), at.shape[1]
        lines = views[int(d <= JOINT) :]
        return cls(
            Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor)),
            jnp.asarray(views[0]) if d <= JOINT else None,
            jnp.asarray(np.stack([line[:, 0] for line in lines])) if lines else None,
            jnp.asarray(lines_of(centre, axes)),
            jnp.asarray(levels),
        )


def model_at(
    theta: Float[Array, " d_theta"], density: MixtureDensity, places: Places
) -> Float[Array, "views levels k"]:
    """The expected kernel of one draw of the model at each place, in the units of `Smoothed`."""
    log_weights, means, covariances = mixture = density.mixture(density.scale_theta(theta))
    unit, origin, parts = density.scale_x.scale, density.scale_x(places.frame.offset), []
    root = math.sqrt(2 * math.pi)
    if places.joint is not None:
        pulled, y = mixture.pull_back(origin, places.frame.basis / unit[:, None]), places.joint
        volumes = (places.levels * root) ** y.shape[1]
        logs = jax.lax.map(lambda h: pulled.smooth(h).log_prob(y), places.levels)
        parts.append((volumes[:, None] * jnp.exp(logs))[None])
    if places.lines is not None:  # the margins of a mixture are mixtures
        axes = places.axes * unit
        offsets = places.lines - ((means - origin) @ axes.T)[:, :, None]
        variances = jnp.einsum("vi,kij,vj->kv", axes, covariances, axes)

        def one(h):
            total = (variances + h**2)[:, :, None]
            logs = log_weights[:, None, None] - 0.5 * (offsets**2 / total + jnp.log(total))
            return h * jnp.exp(jax.nn.logsumexp(logs, axis=0))

        parts.append(jax.lax.map(one, places.levels).transpose(1, 0, 2))
    return jnp.concatenate(parts)


@double_precision
def expected(
    density: MixtureDensity, thetas: Float[np.ndarray, "draws d_theta"], places: Places, total: int
) -> Float[np.ndarray, "views levels k"]:
    """The expected kernel sums of `total` observations under the model, averaged over draws of the parameter."""
    return total * map_rows(model_at, thetas, density, places).mean(axis=0)


def view_columns(d: int, axes: int = 0) -> Int[np.ndarray, " views"]:
    """The views in which data of d columns are compared: -1 is all columns together, -2 another axis."""
    if d == 1:
        return np.array([-1])
    return np.concatenate([np.arange(-1 if d <= JOINT else 0, d), np.full(axes, ACROSS)])


def lines_of(centre: LocationScatter, axes: Float[np.ndarray, "axes d"] | None = None) -> Float[np.ndarray, "lines d"]:
    """The directions of the columns, in units of their scales, and the other axes."""
    columns = np.diag(1 / np.sqrt(np.diagonal(np.asarray(centre.scatter))))
    return columns if axes is None else np.concatenate([columns, axes])


def views_of(
    x: Float[np.ndarray, "k d"], centre: LocationScatter, axes: Float[np.ndarray, "axes d"] | None = None
) -> list[Float[np.ndarray, "k p"]]:
    """Coordinates in which kernels are isotropic: whitened if columns are few, each scaled column, and other axes."""
    d = x.shape[1]
    offsets = x - np.asarray(centre.location)
    views = []
    if d <= JOINT:
        views.append(np.clip(offsets @ np.asarray(centre.inverse).T, -_FAR, _FAR))
    if d > 1:
        views += [np.clip(offsets @ line, -_FAR, _FAR)[:, None] for line in lines_of(centre, axes)]
    return views
