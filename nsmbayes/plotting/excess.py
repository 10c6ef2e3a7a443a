"""The data of each column with the fitted model, to show observations that are more than it explains."""

import numpy as np
from matplotlib.figure import Figure

from nsmbayes._internal.text import shorten
from nsmbayes.errors import InputError
from nsmbayes.plotting.style import COLOURS, figure, styled
from nsmbayes.posteriors import Posterior

_MOST = 12  # maximum number of columns
_BINS = 50
_WIDE = 8.0  # range of the axis in robust scales; farther observations are in the outermost bars
_HALF = 0.5


@styled
def plot_excess(posterior: Posterior) -> Figure:
    """Plot a histogram of each column, the expectation from the fitted model, and the excess observations.

    With more than twelve columns, those with most excess observations are shown. The posterior must be one of
    `NSMBayes` or `NSMBayesConj` with `excess`.
    """
    suspects = posterior.suspects
    if suspects is None:
        raise InputError(f"This {posterior.label} posterior was not compared with its model: build it with `excess`.")
    x, factor = posterior.x, suspects.factor
    marked = factor.values < _HALF
    named = [int((marked & (factor.column == j)).sum()) for j in range(x.shape[1])]
    columns = sorted(np.argsort(named, kind="stable")[::-1][:_MOST].tolist())
    across = min(3, len(columns))
    fig, axes = figure(-(-len(columns) // across), across, (7.2, 2.9 * -(-len(columns) // across)))
    location, scatter = posterior.location_scatter
    for axis, j in zip(axes, columns, strict=False):
        scale = np.sqrt(scatter[j, j])
        low = max(x[:, j].min(), location[j] - _WIDE * scale)
        high = min(x[:, j].max(), location[j] + _WIDE * scale)
        edges = np.linspace(low - 0.02 * scale, high + 0.02 * scale, _BINS + 1)
        shown = np.clip(x[:, j], edges[0], edges[-1])
        groups, colours = [shown[~marked], shown[marked]], [COLOURS["data"], COLOURS["outlier"]]
        labels = ["observations", "too many"]
        axis.hist(groups, bins=edges.tolist(), stacked=True, color=colours, label=labels)
        grid = np.linspace(edges[0], edges[-1], 300)
        heights = factor.values.sum() * (edges[1] - edges[0]) * suspects.model_density(j, grid)
        axis.plot(grid, heights, color=COLOURS["truth"], lw=1.5, label="model")
        name = "x" if x.shape[1] == 1 else f"column {j}"
        axis.set(xlabel=name if posterior.x_names is None else shorten(posterior.x_names[j]))
    for axis in axes[len(columns) :]:
        axis.set_visible(False)
    axes[0].set(ylabel="observations")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)
    return fig
