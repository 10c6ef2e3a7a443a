"""Figures about one posterior."""

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from nsmbayes.posteriors import Calibration, ConjugatePosterior
from nsmbayes.report.style import COLOURS, figure, styled

_PANEL = 3.0  # inches


@styled
def plot_weights(posterior: ConjugatePosterior, *, is_outlier: Bool[np.ndarray, " n"] | None = None) -> Figure:
    """The observations and how far each is trusted.

    With one-dimensional data: a histogram under the weight function. Otherwise: weight against distance from the bulk.
    """
    fig, (axis,) = figure(1, 1, (7.2, 3.6))
    x, weights = posterior.x, posterior.weights
    if x.shape[1] == 1:
        _weights_over_data(axis, posterior, x[:, 0], weights, is_outlier)
        return fig
    location, scatter = posterior.location_scatter
    distance = np.sqrt((np.linalg.solve(np.linalg.cholesky(scatter), (x - location).T) ** 2).sum(axis=0))
    known = np.zeros(len(x), bool) if is_outlier is None else is_outlier
    axis.scatter(distance[~known], weights[~known], s=18, color=COLOURS["data"], label="observation")
    if known.any():
        axis.scatter(distance[known], weights[known], s=22, marker="x", color=COLOURS["outlier"], label="outlier")
    axis.set(xscale="symlog", xlabel="robust distance from the bulk", ylabel="weight $w(x_i)$", ylim=(-0.03, 1.05))
    axis.legend()
    return fig


def _weights_over_data(
    axis: Axes,
    posterior: ConjugatePosterior,
    x: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    is_outlier: Bool[np.ndarray, " n"] | None,
) -> None:
    low, high = x.min(), x.max()
    margin = 0.05 * (high - low)
    bins = np.linspace(low - margin, high + margin, 61)
    if is_outlier is not None and is_outlier.any():
        groups, colours = [x[~is_outlier], x[is_outlier]], [COLOURS["data"], COLOURS["outlier"]]
        labels = ["observations", "outliers (known here, not to the method)"]
        axis.hist(groups, bins=list(bins), stacked=True, color=colours, label=labels)
    else:
        axis.hist(x, bins=list(bins), color=COLOURS["data"], label="observations")
    axis.set(xlabel="x", ylabel="observations", xlim=(bins[0], bins[-1]))
    twin = axis.twinx()
    twin.spines["top"].set_visible(False)
    grid = np.linspace(bins[0], bins[-1], 1000)
    twin.plot(grid, posterior.weight_at(grid[:, None]), color=COLOURS["weight"], lw=1.8, label="weight $w(x)$")
    twin.scatter(x, weights, s=12, color=COLOURS["weight"], zorder=3)
    twin.set(ylabel="weight", ylim=(-0.03, 1.05))
    (bars, bar_labels), (lines, line_labels) = axis.get_legend_handles_labels(), twin.get_legend_handles_labels()
    axis.legend(bars + lines, bar_labels + line_labels, loc="upper center", fontsize=9)


@styled
def plot_marginals(
    posteriors: dict[str, ConjugatePosterior], *, truth: Float[np.ndarray, " d"] | None = None
) -> Figure:
    """Marginal densities of one or more posteriors by label, beside the prior of the first one and the truth."""
    first = next(iter(posteriors.values()))
    columns = min(4, first.dim)
    rows = -(-first.dim // columns)
    fig, axes = figure(rows, columns, (_PANEL * columns, 0.95 * _PANEL * rows))
    lines = {"posterior": COLOURS["nsm-bayes-conj"]} | dict(
        zip(posteriors, (COLOURS["nsm-bayes-conj"], COLOURS["clean"], COLOURS["nle"]), strict=False)
    )
    for j, axis in enumerate(axes):
        if j >= first.dim:
            axis.set_visible(False)
            continue
        centre, spread = first.prior.mean[j], first.prior.stds[j]
        grid = np.linspace(centre - 3.2 * spread, centre + 3.2 * spread, 400)
        axis.plot(grid, stats.norm.pdf(grid, centre, spread), ls=":", color=COLOURS["prior"], label="prior")
        for label, posterior in posteriors.items():
            density = stats.norm.pdf(grid, posterior.mean[j], posterior.stds[j])
            axis.plot(grid, density, color=lines[label], lw=2, label=label)
        axis.fill_between(
            grid, stats.norm.pdf(grid, first.mean[j], first.stds[j]), color=lines[next(iter(posteriors))], alpha=0.15
        )
        if truth is not None:
            axis.axvline(truth[j], ls="--", color=COLOURS["truth"], lw=1.2, label="truth")
        axis.set(xlabel=first.parameter_names[j], yticks=[], ylim=(0, None))
        axis.spines["left"].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return fig


@styled
def plot_calibration(calibration: Calibration) -> Figure:
    """Bootstrap coverage of each learning rate tried, and the one chosen."""
    stochastic = calibration.method.startswith("stochastic")
    fig, axes = figure(1, 2 if stochastic else 1, (8.6 if stochastic else 6.0, 3.2))
    if stochastic:
        steps = np.arange(1, len(calibration.betas) + 1)
        axes[0].plot(steps, calibration.betas, "o-", color=COLOURS["nsm-bayes-conj"], ms=4)
        axes[0].set(yscale="log", xlabel="step", ylabel="learning rate β")
        axes[1].plot(steps, calibration.coverages, "o-", color=COLOURS["nsm-bayes-conj"], ms=4)
        axes[1].set(xlabel="step", ylabel="bootstrap coverage", ylim=(0, 1.03))
    else:
        axes[0].step(calibration.betas, calibration.coverages, where="mid", color=COLOURS["nsm-bayes-conj"], lw=2)
        axes[0].axvline(
            calibration.beta, ls="--", color=COLOURS["truth"], lw=1.2, label=f"chosen β = {calibration.beta:.3g}"
        )
        axes[0].set(xscale="log", xlabel="learning rate β", ylabel="bootstrap coverage", ylim=(0, 1.03))
    axes[-1].axhline(calibration.target, ls=":", color=COLOURS["prior"], label=f"target {calibration.target:.0%}")
    axes[-1].legend(loc="lower left")
    return fig
