"""Posterior predictive plots: observations and predictive data sets, for each column and every pair of columns."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes._internal.text import shorten
from nsmbayes.plotting.style import COLOURS, figure, styled
from nsmbayes.posteriors import LOW_WEIGHT, Posterior
from nsmbayes.posteriors.predictive import Predictive

_MOST = 6  # maximum number of columns
_BINS = 30
_WIDE = 6.0  # range of the axis in robust scales; farther rows are drawn at the edge
_POINTS, _MARGIN = 500, 0.04
_LONGEST = 24
_CROSS: dict[str, Any] = {"s": 22, "marker": "x", "color": COLOURS["outlier"], "lw": 1, "zorder": 3, "clip_on": False}


@styled
def plot_predictive(posterior: Posterior, simulator: Any = None, *, m: int = 100, seed: int = 0) -> Figure:
    """Plot observations and predictive data sets, with columns on the diagonal and pairs below.

    Bars are the observations, each counted by its weight. The line and the band are the median and the central 95 % of
    predictive data sets, weighted in the same way. Crosses are rows with a weight below 0.1; rows outside the axes are
    drawn at the edge. Only the first six columns are shown.
    """
    return draw_predictive(posterior.predict(simulator, m, seed=seed))


@styled
def draw_predictive(predictive: Predictive) -> Figure:
    """Plot the figure of `plot_predictive` for the result of `posterior.predict`."""
    names = predictive.columns[:_MOST]
    d = len(names)
    fig, flat = figure(d, d, (6.4, 3.4) if d == 1 else (2.0 * d + 0.8, 1.9 * d + 0.8))
    axes = np.array(flat).reshape(d, d)
    location, scatter = predictive.location_scatter
    scale = np.sqrt(np.diag(scatter))
    x, low = predictive.observed, predictive.observed_weights < LOW_WEIGHT
    box = [_range(x[~low, j] if (~low).any() else x[:, j], location[j], scale[j]) for j in range(d)]
    shown = np.stack([np.clip(x[:, j], *box[j]) for j in range(d)], axis=1)
    drawn = predictive.x.reshape(-1, predictive.x.shape[2])
    drawn = drawn[np.random.default_rng(0).permutation(len(drawn))[:_POINTS]]
    for i in range(d):
        for j in range(d):
            axis: Axes = axes[i, j]
            if j > i:
                axis.set_visible(False)
                continue
            if i == j:
                _column(axis, predictive, j, box[j], shown[:, j], low)
            else:
                dots: dict[str, Any] = {"lw": 0, "rasterized": True}
                axis.scatter(drawn[:, j], drawn[:, i], s=4, color=COLOURS["prior"], alpha=0.5, **dots)
                axis.scatter(shown[~low, j], shown[~low, i], s=9, color=COLOURS["data"], **dots)
                axis.scatter(shown[low, j], shown[low, i], **_CROSS)
                axis.set_ylim(*box[i])
            axis.set_xlim(*box[j])
            axis.locator_params(nbins=4)
            axis.tick_params(labelsize=8, labelbottom=i == d - 1, labelleft=d == 1 or (j == 0 and i > 0))
            if i == d - 1:
                axis.set_xlabel(shorten(names[j], _LONGEST), parse_math=False)
            if j == 0 and i > 0:
                axis.set_ylabel(shorten(names[i], _LONGEST), parse_math=False)
    place = "upper right" if d > 3 else "outside upper center"
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc=place, ncols=1 if d > 3 else 2, fontsize=9)
    return fig


def _range(column: Float[np.ndarray, " n"], location: float, scale: float) -> tuple[float, float]:
    """Range of the axis for a column: its bulk, with a margin where farther rows are marked."""
    low = max(float(column.min()), location - _WIDE * scale) - scale
    high = min(float(column.max()), location + _WIDE * scale) + scale
    return low, high


def _column(
    axis: Axes,
    predictive: Predictive,
    j: int,
    box: tuple[float, float],
    shown: Float[np.ndarray, " n"],
    low: Bool[np.ndarray, " n"],
) -> None:
    edges = np.linspace(*box, _BINS + 1)
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]

    def density(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.histogram(x, edges, weights=weights)[0] / max(weights.sum(), 1e-300) / width

    own = density(predictive.observed[:, j], predictive.observed_weights)
    sets = [density(x[:, j], w) for x, w in zip(predictive.x, predictive.weights, strict=True)]
    below, half, above = np.quantile(sets, [0.025, 0.5, 0.975], axis=0)
    axis.bar(middle, own, width=width, color=COLOURS["data"], alpha=0.6, label="observations, by weight")
    axis.fill_between(middle, below, above, color=COLOURS["prior"], alpha=0.35, lw=0, label="predicted, 95 %")
    axis.plot(middle, half, color=COLOURS["truth"], lw=1.4, label="predicted, median")
    top = 1.15 * max(own.max(), above.max())
    if low.any():
        at = np.full(int(low.sum()), _MARGIN * top)
        axis.scatter(shown[low], at, label=f"weight below {LOW_WEIGHT}", **_CROSS)
    axis.set(ylim=(0, top), yticks=[])
    axis.spines["left"].set_visible(False)
