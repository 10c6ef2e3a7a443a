"""Figures of scores over all repeats."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes.experiments.figures.looks import legend_above, logarithmic, looks
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import (
    Row,
    column,
    display_name,
    group_by,
    once_per_data_set,
    standard_error,
    without_compilation,
)
from nsmbayes.experiments.spec import AXES
from nsmbayes.plotting.style import COLOURS, LOOKS, figure, styled
from nsmbayes.tasks import NONE

_LOGARITHMIC = ("distance", "n", "m")
_NOMINAL = 0.95
_BESIDE = 0.22  # vertical offset of methods from the line of their data


@styled
def times(result: ExperimentResult) -> Figure:
    """Error against seconds for one data set, one marker per method, with standard errors."""
    fig, axes = figure(1, 2, (8.0, 3.4))
    for axis, (key, name) in zip(axes, (("mse", "MSE"), ("mmd2_ref", "MMD² to the reference")), strict=True):
        for label, rows in group_by(result.rows, lambda row: row.method).items():
            (x, x_error), (y, y_error) = _mean(column(without_compilation(rows), "infer_s")), _mean(column(rows, key))
            look = looks(result)[label]
            style = {"color": look.colour, "marker": look.marker, "ms": 9, "ls": "none", "capsize": 3}
            axis.errorbar(x, y, y_error, x_error, label=display_name(label), mec="white", mew=0.6, **style)
        axis.set(xlabel="inference, seconds", ylabel=name)
        axis.grid(alpha=0.25)
        logarithmic(axis, x=True, y=True)
    legend_above(fig, axes[0], columns=5)
    return fig


@styled
def sweep(result: ExperimentResult) -> Figure:
    """MSE and coverage along the axis of a sweep, with bands of one standard error; the oracle in black."""
    panels = group_by(result.rows, result.panel)
    fig, flat = figure(2, len(panels), (max(3.6 * len(panels), 5.4), 5.6))
    for i, axis in enumerate(flat[1:], 1):
        axis.sharex(flat[0])
        if i != len(panels):
            axis.sharey(flat[0] if i < len(panels) else flat[len(panels)])
    for i, (title, rows) in enumerate(panels.items()):
        error, coverage = flat[i], flat[len(panels) + i]
        for name, mine in group_by(rows, result.method_name).items():
            for axis, key in ((error, "mse"), (coverage, "covered")):
                _curve(axis, result, mine, key, color=LOOKS[name].colour, ls=LOOKS[name].line, label=display_name(name))
        oracle = [row for row in rows if row.oracle_mse is not None]
        if oracle:
            _curve(error, result, oracle, "oracle_mse", color="black", ls="-", label="oracle")
        coverage.axhline(_NOMINAL, ls=":", color=COLOURS["prior"])
        error.set(title=title, ylabel="MSE" if i == 0 else "")
        coverage.set(xlabel=AXES[result.experiment.axis], ylabel="coverage" if i == 0 else "", ylim=(-0.04, 1.04))
        error.tick_params(labelbottom=False)
    logarithmic(*flat[: len(panels)], y=True)
    logarithmic(*flat, x=result.experiment.axis in _LOGARITHMIC)
    legend_above(fig, flat[0])
    return fig


def _curve(axis: Axes, result: ExperimentResult, rows: list[Row], key: str, **look) -> None:
    positions = sorted(group_by(rows, result.position).items())
    rows_here = [once_per_data_set(here) if key == "oracle_mse" else here for _, here in positions]
    x = np.array([position for position, _ in positions])
    y, errors = np.array([_mean(column(here, key)) for here in rows_here]).T
    axis.plot(x, y, marker="o", ms=3, lw=1.8, **look)
    axis.fill_between(x, y - errors, y + errors, color=look["color"], alpha=0.2, lw=0)


@styled
def efficiency(result: ExperimentResult) -> Figure | None:
    """What robustness costs on clean data: posterior standard deviations over those of NLE, by parameter."""
    positions = sorted(group_by([row for row in result.rows if row.contamination == NONE], result.position).items())
    ratios = {position: found for position, rows in positions if (found := result.sd_ratios(rows))}
    if not ratios:
        return None
    names = result.task.parameter_names
    fig, axes = figure(1, len(names), (2.5 * len(names), 3.0))
    for axis in axes[1:]:
        axis.sharey(axes[0])
    for j, axis in enumerate(axes):
        for name in dict.fromkeys(name for found in ratios.values() for name in found):
            x = np.array([position for position, found in ratios.items() if name in found])
            y, errors = np.array([_mean(ratios[position][name][:, j]) for position in x]).T
            look = LOOKS[name]
            axis.plot(x, y, color=look.colour, ls=look.line, marker=look.marker, ms=4, label=display_name(name))
            axis.fill_between(x, y - errors, y + errors, color=look.colour, alpha=0.2, lw=0)
        axis.axhline(1, ls=":", color=COLOURS["prior"])
        axis.set(xlabel=AXES[result.experiment.axis], title=names[j])
    logarithmic(*axes, x=result.experiment.axis in _LOGARITHMIC, y=True)
    axes[0].set_ylabel("sd / sd of NLE")
    legend_above(fig, axes[0])
    return fig


@styled
def bench(result: ExperimentResult) -> Figure:
    """Error in units of the oracle's, and coverage, by kind of outliers."""
    kinds = group_by(result.rows, lambda row: row.data_name)
    fig, (error, coverage) = figure(1, 2, (8.6, 0.42 * len(kinds) + 1.6))
    styles = looks(result)
    beside = dict(zip(styles, np.linspace(-_BESIDE, _BESIDE, len(styles)) * (len(styles) > 1), strict=True))
    for label, look in styles.items():
        for axis, key in ((error, "mse"), (coverage, "covered")):
            points = []
            for y, rows in enumerate(kinds.values()):
                mine = [row for row in rows if row.method == label]
                if mine:
                    value, spread = _mean(column(mine, key))
                    scale = _mean(column(mine, "oracle_mse"))[0] if key == "mse" else 1.0
                    points.append((value / scale, y + beside[label], spread / scale))
            x, y, errors = np.array(points).T
            style = {"color": look.colour, "marker": look.marker, "ms": 7, "ls": "none", "capsize": 2}
            axis.errorbar(x, y, xerr=errors, label=display_name(label), mec="white", mew=0.6, **style)
    for axis in (error, coverage):
        axis.set(yticks=range(len(kinds)), ylim=(len(kinds) - 0.5, -0.5))
        axis.grid(axis="y", alpha=0.25)
    error.set(xlabel="MSE / MSE of the oracle", yticklabels=list(kinds))
    error.axvline(1, color="black", lw=1)
    logarithmic(error, x=True)
    coverage.set(xlabel="coverage of the 95 % region", xlim=(-0.04, 1.04), yticklabels=[])
    coverage.axvline(_NOMINAL, ls=":", color=COLOURS["prior"])
    legend_above(fig, error)
    return fig


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), standard_error(values)
