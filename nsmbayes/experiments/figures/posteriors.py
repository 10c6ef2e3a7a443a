"""Figures of the posteriors of one repeat, from their draws."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes.experiments import paper
from nsmbayes.experiments.figures.looks import legend_above, looks
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import display_name
from nsmbayes.methods import METHODS, NLE, NSMBayes
from nsmbayes.plotting import PairLook, draw_pairs
from nsmbayes.plotting.style import COLOURS, LOOKS, figure, styled
from nsmbayes.posteriors.empirical import Empirical
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import Weighting

_HALF_WIDTH = 6  # maximum range of a panel on either side of the truth, in prior standard deviations
_BINS = 60
_POINTS = 500


@styled
def illustration(result: ExperimentResult) -> Figure:
    """The paper's first figure: the data and how far they are trusted, and what that does to two parameters."""
    arrays, task = result.arrays(result.repeats[0].seed), result.task
    fig, (left, *right) = figure(1, 3, (9.6, 2.9))
    x, outliers = arrays["0:x"][:, 0], arrays["0:is_outlier"]
    bins = list(np.linspace(x.min() - 2, x.max() + 2, _BINS))
    colours = [COLOURS["data"], COLOURS["outlier"]]
    left.hist([x[~outliers], x[outliers]], bins, stacked=True, color=colours, label=["data", "outliers"])
    left.set(xlabel="x", ylabel="observations", xlim=(bins[0], bins[-1]))
    if NSMBayes.name in result.methods:
        twin = left.twinx()
        twin.spines["right"].set_visible(True)
        grid = np.linspace(bins[0], bins[-1], 600)
        twin.plot(grid, _weight(result, arrays["0:x"], grid), color=COLOURS["weight"], lw=1.6, label="weight w(x)")
        twin.set(ylabel="weight", ylim=(0, 1.05), yticks=[0, 0.5, 1])
    draws = {label: arrays[f"0:{label}"] for label in (NLE.name, NSMBayes.name) if label in result.methods}
    for axis, j in zip(right, (1, 2), strict=True):
        grid = _grid([*draws.values()] or [arrays["0:reference"]], task.theta_true, j, half_width=None)
        axis.plot(grid, task.prior.marginal(j, grid), ls=":", color=COLOURS["prior"], label="prior")
        for label, own in draws.items():
            _density(
                axis, grid, own[:, j], color=LOOKS[label].colour, lw=2, ls=LOOKS[label].line, label=display_name(label)
            )
        axis.axvline(task.theta_true[j], ls="--", lw=1.2, color=COLOURS["truth"], label="truth")
        _bare(axis, _name(result, j))
    legend_above(fig, *fig.axes[:1], *fig.axes[3:], right[0], columns=7)
    return fig


def _weight(
    result: ExperimentResult, x: Float[np.ndarray, "n 1"], grid: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " k"]:
    """The weight function of NSM-Bayes for these observations of one column, as used in the repeat."""
    build = NSMBayes.paper if result.preset == "paper" else NSMBayes
    choices = paper.choices(result.task.name, NSMBayes.name) if result.preset == "paper" else {}
    method = build(result.task.prior, **choices)
    return Weighting(method.weight, fit_location_scatter(x)).at(grid[:, None])


@styled
def marginals(result: ExperimentResult) -> Figure:
    """Densities of the draws in the first repeat, with reference, truth and prior; high peaks are cut off."""
    arrays, task = result.arrays(result.repeats[0].seed), result.task
    names = [data.contamination for data in result.experiment.data]
    d = task.prior.dim
    fig, flat = figure(len(names), d, (2.5 * d, 2.3 * len(names) + 0.9))
    axes = np.array(flat).reshape(len(names), d)
    for number, _ in enumerate(names):
        draws = {label: arrays[f"{number}:{label}"] for label in result.methods}
        reference = arrays[f"{number}:reference"]
        for j, axis in enumerate(axes[number]):
            grid = _grid([*draws.values(), reference], task.theta_true, j, half_width=_HALF_WIDTH * task.prior.std[j])
            axis.plot(grid, task.prior.marginal(j, grid), ls=":", color=COLOURS["prior"], label="prior")
            _density(axis, grid, reference[:, j], color="black", lw=2.2, label="reference")
            for label, look in looks(result).items():
                _density(
                    axis, grid, draws[label][:, j], color=look.colour, ls=look.line, lw=1.6, label=display_name(label)
                )
            axis.axvline(task.theta_true[j], ls="--", lw=1.2, color=COLOURS["truth"], label="truth")
            _bare(axis, _name(result, j))
            _cap(axis)
    legend_above(fig, axes[0, 0], columns=6)
    return fig


def pairs(result: ExperimentResult) -> Figure:
    """Every pair of parameters: contours for the method in closed form, draws for the others."""
    arrays, task, drawn = result.arrays(result.repeats[0].seed), result.task, {}
    for label, look in looks(result).items():
        draws, closed = arrays[f"0:{label}"], METHODS[result.methods[label].method].amortised == "fully"
        marginal = Empirical(draws).marginal
        drawn[display_name(label)] = PairLook(
            draws, marginal, *look, size=5, points=0 if closed else _POINTS, contours=closed
        )
    return draw_pairs(drawn, [_name(result, j) for j in range(task.prior.dim)], truth=task.theta_true)


def _name(result: ExperimentResult, j: int) -> str:
    return f"$\\theta_{j + 1}$ ({result.task.parameter_names[j]})"


def _grid(draws: list[np.ndarray], truth: np.ndarray, j: int, half_width: float | None) -> Float[np.ndarray, " k"]:
    """A grid that covers the densities of parameter j, within `half_width` of the truth."""
    spans = [np.quantile(own[:, j], [0.002, 0.998]) for own in draws]
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    margin = 0.15 * (high - low)
    low, high = min(low - margin, truth[j]), max(high + margin, truth[j])
    if half_width is not None:
        low, high = max(low, truth[j] - half_width), min(high, truth[j] + half_width)
    narrow = [np.linspace(span[0], span[1], 150) for span in spans]
    grid = np.unique(np.concatenate([np.linspace(low, high, 300), *narrow]))
    return grid[(grid >= low) & (grid <= high)]


def _density(axis: Axes, grid: Float[np.ndarray, " k"], draws: Float[np.ndarray, " m"], **look: Any) -> None:
    """Draw a kernel density; identical draws, which have no density, are shown as a line."""
    if np.ptp(draws) == 0:
        axis.axvline(draws[0], **look)
    else:
        axis.plot(grid, Empirical(draws[:, None]).marginal(0, grid), **look)


def _cap(axis: Axes) -> None:
    """Limit the axis if some curves are so high that the others would look flat."""
    heights = sorted(float(np.max(line.get_ydata())) for line in axis.lines if len(np.ravel(line.get_ydata())) > 2)
    axis.set_ylim(0, min(1.08 * heights[-1], 4 * float(np.median(heights))))


def _bare(axis: Axes, name: str) -> None:
    axis.set(yticks=[], ylim=(0, None), xlabel=name)
    axis.locator_params(axis="x", nbins=4)
    axis.spines["left"].set_visible(False)
