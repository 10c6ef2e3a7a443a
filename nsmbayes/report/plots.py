"""Figures about one posterior."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from scipy import stats

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.posteriors import Calibration, Posterior
from nsmbayes.report.style import COLOURS, figure, styled
from nsmbayes.robustness import line, pif_delta

_PANEL = 2.4  # inches
_HISTOGRAM_REACH = 200  # robust standard deviations; data that reach further leave their bulk in one bar
_MANY = 2000  # points from which on an SVG holds a picture of them: one element each would be megabytes
_PAIRS = 8  # parameters that a pair plot has room for
_PAIR_DRAWS = 1000
_OUTLIERS = "outliers (known here, not to the method)"


@styled
def plot_weights(posterior: Posterior, *, is_outlier: Bool[np.ndarray, " n"] | None = None) -> Figure:
    """The observations and how far each is trusted.

    With one-dimensional data: a histogram under the weight function. With more dimensions, or outliers so far away
    that the histogram shows nothing else: weight against distance from the bulk.
    """
    fig, (axis,) = figure(1, 1, (7.2, 3.6))
    x, weights = posterior.x, posterior.weights
    location, scatter = posterior.location_scatter
    distance = np.hypot.reduce(np.linalg.solve(np.linalg.cholesky(scatter), (x - location).T))
    if x.shape[1] == 1 and distance.max() < _HISTOGRAM_REACH:
        _weights_over_data(axis, posterior, x[:, 0], weights, is_outlier)
        return fig
    known = _known(is_outlier, len(x))
    distance = np.minimum(distance, 1e30)  # far enough for a plot; beyond 1e300 matplotlib's margins overflow
    groups = [(~known, "o", "data", "observations"), (known, "x", "outlier", _OUTLIERS)]
    for rows, marker, role, label in groups[: 1 + known.any()]:
        colour = COLOURS[role]
        axis.scatter(
            distance[rows], weights[rows], s=20, marker=marker, color=colour, label=label, rasterized=len(x) > _MANY
        )
    # Unlike symlog, asinh has no kink where it turns from linear to logarithmic; its own ticks crowd at zero.
    axis.set(xscale="asinh", xlim=(0, None), ylim=(-0.03, 1.05))
    axis.set(xlabel="robust distance from the bulk", ylabel="weight $w(x_i)$")
    ticks = _distance_ticks(axis.get_xlim()[1])
    axis.set_xticks(list(ticks), labels=list(ticks.values()))
    axis.set_xticks([], minor=True)
    axis.legend()
    return fig


def _distance_ticks(end: float) -> dict[float, str]:
    """Zero and round numbers up to `end`, about evenly spaced on an asinh axis."""
    decades = int(np.log10(max(end, 1)))
    if decades < 3:
        return {t: f"{t:g}" for t in (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if t <= end}
    step = 1 + decades // 8
    return {0: "0"} | {10.0**k: f"$10^{{{k}}}$" for k in range(step, decades + 1, step)}


def _weights_over_data(
    axis: Axes,
    posterior: Posterior,
    x: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    is_outlier: Bool[np.ndarray, " n"] | None,
) -> None:
    low, high = x.min(), x.max()
    margin = 0.05 * (high - low)
    bins = np.linspace(low - margin, high + margin, 61)
    if is_outlier is not None and is_outlier.any():
        groups, colours = [x[~is_outlier], x[is_outlier]], [COLOURS["data"], COLOURS["outlier"]]
        axis.hist(groups, bins=list(bins), stacked=True, color=colours, label=["observations", _OUTLIERS])
    else:
        axis.hist(x, bins=list(bins), color=COLOURS["data"], label="observations")
    axis.set(xlabel="x", ylabel="observations", xlim=(bins[0], bins[-1]))
    twin = axis.twinx()
    twin.spines["right"].set_visible(True)
    grid = np.linspace(bins[0], bins[-1], 1000)
    twin.plot(grid, posterior.weight_at(grid[:, None]), color=COLOURS["weight"], lw=1.8, label="weight $w(x)$")
    twin.scatter(x, weights, s=12, color=COLOURS["weight"], zorder=3, clip_on=False, rasterized=len(x) > _MANY)
    twin.set(ylabel="weight", ylim=(0, 1.05))
    (bars, bar_labels), (lines, line_labels) = axis.get_legend_handles_labels(), twin.get_legend_handles_labels()
    axis.legend(bars + lines, bar_labels + line_labels, loc="best", fontsize=9)


@styled
def plot_marginals(posteriors: dict[str, Posterior], *, truth: Float[np.ndarray, " d"] | None = None) -> Figure:
    """Marginal densities of one or more posteriors by label, beside the prior of the first one and the truth."""
    first = next(iter(posteriors.values()))
    colours = _colours(posteriors)
    columns = min(4, first.dim)
    rows = -(-first.dim // columns)
    fig, axes = figure(rows, columns, (max(_PANEL * columns, 6.0), 0.95 * _PANEL * rows + 0.4))
    for j, axis in enumerate(axes):
        if j >= first.dim:
            axis.set_visible(False)
            continue
        shown = [("prior", first.prior), *posteriors.items()]
        # Every curve brings its own part of the grid, so that the narrowest is drawn as smoothly as the widest.
        spans = [p.mean[j] + p.stds[j] * np.linspace(-3.5, 3.5, 200) for _, p in shown]
        grid = np.unique(np.concatenate(spans))
        for label, distribution in shown:
            density = distribution.marginal(j, grid)
            look: dict[str, Any] = {"ls": ":", "color": COLOURS["prior"]}
            if distribution is not first.prior:
                look = {"lw": 2, "color": colours[label]}
            axis.plot(grid, density, label=label, **look)
            if distribution is first:
                axis.fill_between(grid, density, color=look["color"], alpha=0.15)
        if truth is not None:
            axis.axvline(truth[j], ls="--", color=COLOURS["truth"], lw=1.2, label="truth")
        axis.set(yticks=[], ylim=(0, None))
        axis.set_xlabel(first.parameter_names[j], parse_math=_is_math(first.parameter_names[j]))
        axis.spines["left"].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=9)
    return fig


class PairLook(NamedTuple):
    """Draws of one distribution in a pair plot, and how they are shown."""

    draws: Float[np.ndarray, "m d"]
    marginal: Callable[[int, Float[np.ndarray, " k"]], Float[np.ndarray, " k"]]
    colour: Any
    line: Any = "-"
    marker: str = "o"
    size: float = 2
    points: int = 300
    contours: bool = True


@styled
def plot_pairs(posteriors: dict[str, Posterior], *, truth: Float[np.ndarray, " d"] | None = None) -> Figure:
    """Every pair of parameters of one or more posteriors: draws, and the contours around 50 and 95 % of them.

    Marginals are on the diagonal. At most `_PAIRS` parameters are shown, the first ones.
    """
    colours = _colours(posteriors)
    looks = {
        label: PairLook(p.sample((_PAIR_DRAWS,), seed=0), p.marginal, colours[label]) for label, p in posteriors.items()
    }
    return draw_pairs(looks, next(iter(posteriors.values())).parameter_names, truth=truth)


@styled
def draw_pairs(
    looks: dict[str, PairLook], names: Sequence[str], *, truth: Float[np.ndarray, " d"] | None = None
) -> Figure:
    """The same of draws."""
    d = min(len(names), _PAIRS)
    fig, flat = figure(d, d, (1.9 * d + 0.6, 1.8 * d + 0.6))
    axes = np.array(flat).reshape(d, d)
    low, high = (np.quantile(np.concatenate([own.draws for own in looks.values()]), q, axis=0) for q in (0.002, 0.998))
    if truth is not None:
        low, high = np.minimum(low, truth), np.maximum(high, truth)
    low, high = low - 0.08 * (high - low), high + 0.08 * (high - low)
    for i in range(d):
        for j in range(d):
            axis: Axes = axes[i, j]
            if j > i:
                axis.set_visible(False)
                continue
            for label, own in looks.items():
                if i == j:
                    grid = np.linspace(low[j], high[j], 200)
                    axis.plot(grid, own.marginal(j, grid), color=own.colour, ls=own.line, lw=1.6, label=label)
                    continue
                points, look = own.draws[: own.points, [j, i]], {"s": own.size, "marker": own.marker}
                axis.scatter(*points.T, alpha=0.25, color=own.colour, lw=0, rasterized=True, **look)
                if own.contours:
                    _contours(axis, own.draws[:, [j, i]], (low[[j, i]], high[[j, i]]), own.colour)
            if truth is not None:
                axis.axvline(truth[j], ls="--", color=COLOURS["truth"], lw=1)
                if i != j:
                    axis.axhline(truth[i], ls="--", color=COLOURS["truth"], lw=1)
            axis.set_xlim(low[j], high[j])
            axis.locator_params(nbins=4)
            if i != j:
                axis.set_ylim(low[i], high[i])
            if i == d - 1:
                axis.set_xlabel(names[j], parse_math=_is_math(names[j]))
            if j == 0 and i > 0:
                axis.set_ylabel(names[i], parse_math=_is_math(names[i]))
            axis.tick_params(labelsize=8, labelbottom=i == d - 1, labelleft=j == 0 and i > 0)
            if i == j:
                axis.set(yticks=[], ylim=(0, None))
    place = "upper right" if d > 3 else "outside upper right"  # where no panels are, if that is room enough
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc=place, fontsize=9, handlelength=2.8)
    return fig


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


def _colours(posteriors: dict[str, Posterior]) -> dict[str, str]:
    """The colour of each label: its method's own, or one of those that are left."""
    left = cycle(COLOURS[role] for role in ("nsm-bayes-conj", "clean", "nle", "nsm-bayes", "data"))
    return {label: COLOURS[label.lower()] if label.lower() in COLOURS else next(left) for label in posteriors}


def _is_math(name: str) -> bool:
    """Whether matplotlib can typeset a name between dollar signs; otherwise it is shown as it stands."""
    try:
        MathTextParser("path").parse(name)
    except ValueError:
        return False
    return True


@styled
def plot_calibration(calibration: Calibration) -> Figure:
    """Bootstrap coverage of each learning rate tried, and the one chosen."""
    stochastic = calibration.method.startswith("stochastic")
    chosen: dict[str, Any] = {
        "ls": "--",
        "color": COLOURS["truth"],
        "lw": 1.2,
        "label": f"chosen β = {calibration.beta:.3g}",
    }
    fig, axes = figure(1, 2 if stochastic else 1, (8.6 if stochastic else 6.0, 3.2))
    if stochastic:
        steps = np.arange(1, len(calibration.betas) + 1)
        axes[0].plot(steps, calibration.betas, "o-", color=COLOURS["nsm-bayes-conj"], ms=4)
        axes[0].axhline(calibration.beta, **chosen)
        axes[0].set(yscale="log", xlabel="step", ylabel="learning rate β")
        axes[0].legend(loc="lower right")
        axes[1].plot(steps, calibration.coverages, "o-", color=COLOURS["nsm-bayes-conj"], ms=4)
        axes[1].set(xlabel="step", ylabel="bootstrap coverage", ylim=(0, 1.03))
    else:
        axes[0].step(
            calibration.betas, calibration.coverages, where="mid", marker=".", color=COLOURS["nsm-bayes-conj"], lw=2
        )
        axes[0].axvline(calibration.beta, **chosen)
        axes[0].set(xscale="log", xlabel="learning rate β", ylabel="bootstrap coverage", ylim=(0, 1.03))
    axes[-1].axhline(calibration.target, ls=":", color=COLOURS["prior"], label=f"target {calibration.target:.0%}")
    axes[-1].legend(loc="lower left")
    return fig


@styled
def plot_influence(posteriors: dict[str, Posterior], *, direction: Any = None, reach: float = 1e6) -> Figure:
    """The influence of one observation on each posterior, by label, as it moves away from the bulk of the first one's.

    Influence is half the integral of |PIF_Delta| over theta: how fast the posterior changes in total variation as the
    observation takes a share of the data.
    """
    first = next(iter(posteriors.values()))
    fig, (axis,) = figure(1, 1, (6.4, 3.8))
    distances = np.concatenate([np.linspace(0, 10, 41)[:-1], np.geomspace(10, reach, 61)])
    points, colours = line(first, distances, direction), _colours(posteriors)
    for label, posterior in posteriors.items():
        axis.plot(distances, pif_delta(posterior, points).total_variation, lw=2, color=colours[label], label=label)
    axis.set(xscale="asinh", yscale="log", xlim=(0, reach))
    axis.set(xlabel="distance of one observation from the bulk, in robust standard deviations", ylabel="influence")
    ticks = _distance_ticks(reach)
    axis.set_xticks(list(ticks), labels=list(ticks.values()))
    axis.set_xticks([], minor=True)
    axis.legend()
    return fig


@styled
def plot_trajectories(reported: Num[np.ndarray, "n T"], *, is_outlier: Bool[np.ndarray, " n"] | None = None) -> Figure:
    """The cases that many epidemics reported at the times 1, ..., T, a line each; known outliers are dashed.

    The axis ends with the last report.
    """
    reported = _checks.matrix(reported, "reported")
    known = _known(is_outlier, len(reported))
    fig, (axis,) = figure(1, 1, (6.4, 3.4))
    times = np.arange(1.0, reported.shape[1] + 1)
    for rows, role, label, look in (
        (~known, "data", "observed epidemics", {"alpha": 0.3, "linewidths": 0.8}),
        (known, "outlier", _OUTLIERS, {"linestyles": "--", "linewidths": 1.4}),
    ):
        if rows.any():
            lines = [np.column_stack([times, row]) for row in reported[rows]]
            axis.add_collection(LineCollection(lines, color=COLOURS[role], label=label, **look))
    axis.autoscale_view()
    last = np.flatnonzero(reported.any(axis=0)).max(initial=1) + 1
    axis.set(xlabel="time", ylabel="reported cases", xlim=(1, last), ylim=(0, None))
    for handle in axis.legend().legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return fig


@styled
def plot_delay_profile(
    times: Float[np.ndarray, " T"], power: Float[np.ndarray, "n T"], *, is_outlier: Bool[np.ndarray, " n"] | None = None
) -> Figure:
    """The power that many receivers recorded, in decibels at `times` in seconds: the average, and one series behind it.

    Where outliers are known, their average and the first of them are drawn apart from those of the others.
    """
    power = _checks.matrix(power, "power")
    if power.min() <= 0:
        raise InputError(f"`power` must be positive, for decibels; got {power.min():g}. Pass |y(t)|^2 of noisy series.")
    times = _checks.vector(times, "times", length=power.shape[1])
    known = _known(is_outlier, len(power))
    fig, (axis,) = figure(1, 1, (6.4, 3.6))
    for rows, role, label, style in (
        (~known, "data", "observations", "-"),
        (known, "outlier", _OUTLIERS, "--"),
    ):
        if not rows.any():
            continue
        shown = power[rows]
        axis.plot(times * 1e9, 10 * np.log10(shown[0]), color=COLOURS[role], lw=0.6, alpha=0.4)
        mean = 10 * np.log10(shown.mean(axis=0))
        axis.plot(times * 1e9, mean, color=COLOURS[role], lw=1.8, ls=style, label=f"{label}: average of {len(shown)}")
    axis.set(xlabel="delay in ns", ylabel="power in dB", xlim=(times[0] * 1e9, times[-1] * 1e9))
    axis.legend()
    return fig


def _known(is_outlier: Bool[np.ndarray, " n"] | None, n: int) -> Bool[np.ndarray, " n"]:
    """Which rows are known to be outliers: none, if nothing is said."""
    if is_outlier is None:
        return np.zeros(n, bool)
    if np.shape(is_outlier) != (n,):
        raise InputError(f"`is_outlier` must have shape ({n},), one entry a row; got {np.shape(is_outlier)}.")
    return np.asarray(is_outlier, bool)
