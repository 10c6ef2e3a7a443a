"""Marginals and pairs of parameters, of one posterior or of several."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from scipy import stats

from nsmbayes._internal.text import shorten
from nsmbayes.errors import InputError
from nsmbayes.plotting.style import COLOURS, figure, label_colours, styled
from nsmbayes.posteriors import Posterior

_PANEL = 2.4  # inches
_PAIRS = 8  # maximum number of parameters in a pair plot
_PAIR_DRAWS = 1000
_LONGEST = 30  # maximum number of characters of an axis label


Posteriors = Posterior | Mapping[str, Posterior] | Sequence[Posterior]


def by_label(posteriors: Posteriors) -> dict[str, Posterior]:
    """Convert one posterior, a list of posteriors, or a dictionary by label to a dictionary by label."""
    if isinstance(posteriors, Mapping):
        found = dict(posteriors)
    else:
        found = {
            getattr(p, "label", ""): p for p in ([posteriors] if isinstance(posteriors, Posterior) else posteriors)
        }
    if not found or not all(isinstance(p, Posterior) for p in found.values()):
        raise InputError("`posteriors` must be a posterior, a list of them, or a dictionary of them by label.")
    return found


@styled
def plot_marginals(posteriors: Posteriors, *, truth: Float[np.ndarray, " d"] | None = None) -> Figure:
    """Plot marginal densities of one or more posteriors by label, with the prior of the first one and the truth."""
    posteriors = by_label(posteriors)
    first = next(iter(posteriors.values()))
    colours = label_colours(posteriors)
    columns = min(4, first.dim)
    rows = -(-first.dim // columns)
    fig, axes = figure(rows, columns, (max(_PANEL * columns, 6.0), 0.95 * _PANEL * rows + 0.4))
    for j, axis in enumerate(axes):
        if j >= first.dim:
            axis.set_visible(False)
            continue
        shown = [("prior", first.prior), *posteriors.items()]
        # Every curve adds its own points to the grid, so that narrow curves are as smooth as wide ones.
        spans = [p.mean[j] + p.std[j] * np.linspace(-3.5, 3.5, 200) for _, p in shown]
        grid = np.unique(np.concatenate(spans))
        for label, distribution in shown:
            density = distribution.marginal(j, grid)
            look: dict[str, Any] = {"ls": ":", "color": COLOURS["prior"]}
            if distribution is not first.prior:
                look = {"lw": 2, "color": colours[label]}
            axis.plot(grid, density, label=shorten(label), **look)
            if distribution is first:
                axis.fill_between(grid, density, color=look["color"], alpha=0.15)
        if truth is not None:
            axis.axvline(truth[j], ls="--", color=COLOURS["truth"], lw=1.2, label="truth")
        axis.set(yticks=[], ylim=(0, None))
        axis.set_xlabel(**_axis_label(first.parameter_names[j]))
        axis.spines["left"].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=9)
    return fig


class PairLook(NamedTuple):
    """Draws of one distribution in a pair plot, with their style."""

    draws: Float[np.ndarray, "m d"]
    marginal: Callable[[int, Float[np.ndarray, " k"]], Float[np.ndarray, " k"]]
    """the density of parameter j on a grid"""
    colour: Any
    line: Any = "-"
    marker: str = "o"
    size: float = 2
    points: int = 300
    """number of draws that are shown"""
    contours: bool = True


@styled
def plot_pairs(posteriors: Posteriors, *, truth: Float[np.ndarray, " d"] | None = None) -> Figure:
    """Plot every pair of parameters of one or more posteriors: draws, and contours around 50 and 95 % of them.

    Marginals are on the diagonal. Only the first eight parameters are shown. `posteriors` is one posterior, a list, or
    a dictionary by label.
    """
    posteriors = by_label(posteriors)
    colours = label_colours(posteriors)
    looks = {
        label: PairLook(p.sample((_PAIR_DRAWS,), seed=0), p.marginal, colours[label]) for label, p in posteriors.items()
    }
    return draw_pairs(looks, next(iter(posteriors.values())).parameter_names, truth=truth)


@styled
def draw_pairs(
    looks: dict[str, PairLook], names: Sequence[str], *, truth: Float[np.ndarray, " d"] | None = None
) -> Figure:
    """Plot the figure of `plot_pairs` for draws of any distributions, by label; `names` are the parameter names."""
    d = min(len(names), _PAIRS)
    fig, flat = figure(d, d, (1.9 * d + 0.6, 1.8 * d + 0.6))
    axes = np.array(flat).reshape(d, d)
    low, high = _box([look.draws for look in looks.values()], truth)
    for i in range(d):
        for j in range(d):
            axis: Axes = axes[i, j]
            if j > i:
                axis.set_visible(False)
                continue
            for label, look in looks.items():
                if i == j:
                    grid = np.linspace(low[j], high[j], 200)
                    axis.plot(
                        grid, look.marginal(j, grid), color=look.colour, ls=look.line, lw=1.6, label=shorten(label)
                    )
                    continue
                points, marks = look.draws[: look.points, [j, i]], {"s": look.size, "marker": look.marker}
                axis.scatter(*points.T, alpha=0.25, color=look.colour, lw=0, rasterized=True, **marks)
                if look.contours:
                    _contours(axis, look.draws[:, [j, i]], (low[[j, i]], high[[j, i]]), look.colour)
            if truth is not None:
                axis.axvline(truth[j], ls="--", color=COLOURS["truth"], lw=1)
                if i != j:
                    axis.axhline(truth[i], ls="--", color=COLOURS["truth"], lw=1)
            axis.set_xlim(low[j], high[j])
            axis.locator_params(nbins=4)
            if i != j:
                axis.set_ylim(low[i], high[i])
            if i == d - 1:
                axis.set_xlabel(**_axis_label(names[j]))
            if j == 0 and i > 0:
                axis.set_ylabel(**_axis_label(names[i], "ylabel"))
            axis.tick_params(labelsize=8, labelbottom=i == d - 1, labelleft=j == 0 and i > 0)
            if i == j:
                axis.set(yticks=[], ylim=(0, None))
    place = "upper right" if d > 3 else "outside upper right"  # the empty corner, if it is large enough
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc=place, fontsize=9, handlelength=2.8)
    return fig


def _box(
    draws: list[Float[np.ndarray, "m d"]], truth: Float[np.ndarray, " d"] | None
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """The limits of the axes: nearly all draws and the truth, with a margin."""
    low, high = (np.quantile(np.concatenate(draws), q, axis=0) for q in (0.002, 0.998))
    if truth is not None:
        low, high = np.minimum(low, truth), np.maximum(high, truth)
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _contours(axis: Axes, draws: Float[np.ndarray, "n 2"], box: tuple[np.ndarray, np.ndarray], colour: Any) -> None:
    """Contours of a kernel density estimate around 50 and 95 % of the draws."""
    if np.linalg.matrix_rank(np.cov(draws.T), hermitian=True) < 2:
        return  # draws on a line have no density in the plane
    density = stats.gaussian_kde(draws.T)
    heights = density(draws[:500].T)
    x, y = (np.linspace(a, b, 60) for a, b in zip(*box, strict=True))
    values = density(np.stack([a.ravel() for a in np.meshgrid(x, y)])).reshape(60, 60)
    levels = np.quantile(heights, [0.05, 0.5])
    if levels[0] < levels[1]:
        axis.contour(x, y, values, levels=levels, colors=[colour], linewidths=[1.0, 1.6])


def _axis_label(name: str, axis: str = "xlabel") -> dict[str, Any]:
    """Options for an axis label with the name of a parameter: shortened, and typeset as mathematics if possible."""
    short = shorten(name, _LONGEST)
    return {axis: short, "parse_math": _is_math(short)}


def _is_math(name: str) -> bool:
    """Whether matplotlib can typeset a name between dollar signs; otherwise it is shown unchanged."""
    try:
        MathTextParser("path").parse(name)
    except ValueError:
        return False
    return True
