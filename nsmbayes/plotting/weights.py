"""The figure of the observations and their weights."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes.errors import InputError
from nsmbayes.plotting.style import COLOURS, OUTLIERS, figure, outlier_mask, set_distance_axis, styled
from nsmbayes.posteriors import Posterior
from nsmbayes.scatter import fit_location_scatter

_HISTOGRAM_REACH = 200  # robust standard deviations; with a larger range, the bulk would be in one bar
_MANY = 2000  # more points are rasterised in an SVG: one element per point would need megabytes
_FAR = 1e300  # a coordinate where every decaying weight is zero
_FARTHEST_SHOWN = 1e30  # maximum distance in a plot; matplotlib's margins overflow beyond 1e300


@styled
def plot_weights(posterior: Posterior, *, is_outlier: Bool[np.ndarray, " n"] | None = None) -> Figure:
    """Plot the observations and their weights.

    One-dimensional data are shown as a histogram with the weight function. Data with more dimensions, or with outliers
    too far away for a histogram, are shown as weight against robust distance from the bulk. Data without a robust
    scatter, because of ties, are shown as weight against row number.
    """
    fig, (axis,) = figure(1, 1, (7.2, 3.6))
    x, known = posterior.x, outlier_mask(is_outlier, posterior.n)
    try:
        distance = _distances(posterior)
    except InputError:
        _scatter(axis, np.arange(len(x)), posterior.weights, known)
        axis.set(xlabel="row of the observation")
        return fig
    if x.shape[1] == 1 and distance.max() < _HISTOGRAM_REACH:
        _draw_over_data(fig, axis, posterior, known)
        return fig
    _scatter(axis, np.minimum(distance, _FARTHEST_SHOWN), posterior.weights, known)
    set_distance_axis(axis)
    axis.set(xlabel="robust distance from the bulk")
    return fig


def weighs_alike(posterior: Posterior) -> bool:
    """Whether the posterior gives weight 1 to every possible observation, as most methods do.

    A stored posterior only has the weights of its own observations, which are used instead.
    """
    try:
        weights = posterior.weight_at(np.full((2, posterior.x.shape[1]), [[_FAR], [-_FAR]]))
    except InputError:
        weights = posterior.weights
    return bool((weights == 1).all())


def _distances(posterior: Posterior) -> Float[np.ndarray, " n"]:
    """Robust distances of the observations from their bulk; `InputError` if the data have no robust scatter."""
    if np.isnan(posterior.x).any():
        raise InputError("Distances in different columns cannot be compared.")
    if weighs_alike(posterior):  # NLE has no location and scatter, since its weight is constant
        centre = fit_location_scatter(posterior.x)
        location, scatter = np.asarray(centre.location), np.asarray(centre.scatter)
    else:
        location, scatter = posterior.location_scatter
    return np.hypot.reduce(np.linalg.solve(np.linalg.cholesky(scatter), (posterior.x - location).T))


def _scatter(axis: Axes, place: np.ndarray, weights: Float[np.ndarray, " n"], known: Bool[np.ndarray, " n"]) -> None:
    """Draw one point per observation, with different markers for known outliers."""
    groups = [(~known, "o", "data", "observations"), (known, "x", "outlier", OUTLIERS)]
    for rows, marker, role, label in groups[: 1 + known.any()]:
        style: dict[str, Any] = {"s": 20, "marker": marker, "color": COLOURS[role], "rasterized": len(place) > _MANY}
        axis.scatter(place[rows], weights[rows], label=label, **style)
    axis.set(ylim=(-0.03, 1.05), ylabel="weight $w(x_i)$")
    axis.legend()


def _draw_over_data(fig: Figure, axis: Axes, posterior: Posterior, known: Bool[np.ndarray, " n"]) -> None:
    """Draw a histogram of one-dimensional data, with the weight function and the weights on a second axis."""
    x, many = posterior.x[:, 0], posterior.n > _MANY
    low, high = x.min(), x.max()
    margin = 0.05 * (high - low)
    bins = np.linspace(low - margin, high + margin, 61)
    if known.any():
        groups, colours = [x[~known], x[known]], [COLOURS["data"], COLOURS["outlier"]]
        axis.hist(groups, bins=list(bins), stacked=True, color=colours, label=["observations", OUTLIERS])
    else:
        axis.hist(x, bins=list(bins), color=COLOURS["data"], label="observations")
    axis.set(xlabel="x", ylabel="observations", xlim=(bins[0], bins[-1]))
    twin = axis.twinx()
    twin.spines["right"].set_visible(True)
    grid, label = np.linspace(bins[0], bins[-1], 1000), "weight $w(x)$"
    try:
        twin.plot(grid, posterior.weight_at(grid[:, None]), color=COLOURS["weight"], lw=1.8, label=label)
        label = None
    except InputError:  # a stored posterior keeps no weight function
        pass
    points: dict[str, Any] = {"s": 12, "color": COLOURS["weight"], "clip_on": False, "rasterized": many}
    twin.scatter(x, posterior.weights, zorder=3, label=label, **points)
    twin.set(ylabel="weight", ylim=(0, 1.05))
    (bars, bar_labels), (lines, line_labels) = axis.get_legend_handles_labels(), twin.get_legend_handles_labels()
    labels = bar_labels + line_labels
    # outside, because free space on one of the two axes may be occupied on the other
    fig.legend(bars + lines, labels, loc="outside upper center", ncols=len(labels), fontsize=9)
