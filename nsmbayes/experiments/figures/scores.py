"""Figures of scores over all repeats."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes.experiments.figures.looks import legend_above, logarithmic, looks
from nsmbayes.experiments.finished import (
    AXES,
    Finished,
    Rows,
    about,
    grouped,
    once_a_data_set,
    sd_ratios,
    shown,
    standard_error,
    uncompiled,
    values,
)
from nsmbayes.report.style import COLOURS, LOOKS, figure, styled
from nsmbayes.tasks import NONE

_LOGARITHMIC = ("distance", "n", "m")
_NOMINAL = 0.95
_BESIDE = 0.22  # how far methods stand above and below the line of their data


@styled
def times(run: Finished) -> Figure:
    """Error against seconds for one data set, a marker a method, with standard errors."""
    fig, axes = figure(1, 2, (8.0, 3.4))
    for axis, (key, name) in zip(axes, (("mse", "MSE"), ("mmd2_ref", "MMD² to the reference")), strict=True):
        for label, rows in grouped(run.rows, lambda row: row["method"]).items():
            (x, x_error), (y, y_error) = _mean(values(uncompiled(rows), "infer_s")), _mean(values(rows, key))
            look = looks(run)[label]
            style = {"color": look.colour, "marker": look.marker, "ms": 9, "ls": "none", "capsize": 3}
            axis.errorbar(x, y, y_error, x_error, label=shown(label), mec="white", mew=0.6, **style)
        axis.set(xlabel="inference, seconds", ylabel=name)
        axis.grid(alpha=0.25)
        logarithmic(axis, x=True, y=True)
    legend_above(fig, axes[0], columns=5)
    return fig


@styled
def sweep(run: Finished) -> Figure:
    """MSE and coverage along the axis of a sweep, with bands of one standard error; the oracle in black."""
    panels = grouped(run.rows, run.panel)
    fig, flat = figure(2, len(panels), (max(3.6 * len(panels), 5.4), 5.6))
    for i, axis in enumerate(flat[1:], 1):
        axis.sharex(flat[0])
        if i != len(panels):
            axis.sharey(flat[0] if i < len(panels) else flat[len(panels)])
    for column, (title, rows) in enumerate(panels.items()):
        error, coverage = flat[column], flat[len(panels) + column]
        for name, mine in grouped(rows, run.method).items():
            for axis, key in ((error, "mse"), (coverage, "covered")):
                _curve(axis, run, mine, key, color=LOOKS[name].colour, ls=LOOKS[name].line, label=shown(name))
        oracle = [row for row in rows if row.get("oracle_mse") is not None]
        if oracle:
            _curve(error, run, oracle, "oracle_mse", color="black", ls="-", label="oracle")
        coverage.axhline(_NOMINAL, ls=":", color=COLOURS["prior"])
        error.set(title=title, ylabel="MSE" if column == 0 else "")
        coverage.set(xlabel=AXES[run.experiment.axis], ylabel="coverage" if column == 0 else "", ylim=(-0.04, 1.04))
        error.tick_params(labelbottom=False)
    logarithmic(*flat[: len(panels)], y=True)
    logarithmic(*flat, x=run.experiment.axis in _LOGARITHMIC)
    legend_above(fig, flat[0])
    return fig


def _curve(axis: Axes, run: Finished, rows: Rows, key: str, **look) -> None:
    places = sorted(grouped(rows, run.place).items())
    rows_here = [once_a_data_set(here) if key == "oracle_mse" else here for _, here in places]
    x = np.array([place for place, _ in places])
    y, errors = np.array([_mean(values(here, key)) for here in rows_here]).T
    axis.plot(x, y, marker="o", ms=3, lw=1.8, **look)
    axis.fill_between(x, y - errors, y + errors, color=look["color"], alpha=0.2, lw=0)


@styled
def efficiency(run: Finished) -> Figure | None:
    """What robustness costs on clean data: posterior standard deviations over those of NLE, by parameter."""
    places = sorted(grouped([r for r in run.rows if r["contamination"] == NONE], run.place).items())
    ratios = {place: found for place, rows in places if (found := sd_ratios(run, rows))}
    if not ratios:
        return None
    names = run.task.parameter_names
    fig, axes = figure(1, len(names), (2.5 * len(names), 3.0))
    for axis in axes[1:]:
        axis.sharey(axes[0])
    for j, axis in enumerate(axes):
        for name in dict.fromkeys(name for found in ratios.values() for name in found):
            x = np.array([place for place, found in ratios.items() if name in found])
            y, errors = np.array([_mean(ratios[place][name][:, j]) for place in x]).T
            look = LOOKS[name]
            axis.plot(x, y, color=look.colour, ls=look.line, marker=look.marker, ms=4, label=shown(name))
            axis.fill_between(x, y - errors, y + errors, color=look.colour, alpha=0.2, lw=0)
        axis.axhline(1, ls=":", color=COLOURS["prior"])
        axis.set(xlabel=AXES[run.experiment.axis], title=names[j])
    logarithmic(*axes, x=run.experiment.axis in _LOGARITHMIC, y=True)
    axes[0].set_ylabel("sd / sd of NLE")
    legend_above(fig, axes[0])
    return fig


@styled
def bench(run: Finished) -> Figure:
    """Error in units of the oracle's, and coverage, by kind of outliers."""
    kinds = grouped(run.rows, about)
    fig, (error, coverage) = figure(1, 2, (8.6, 0.42 * len(kinds) + 1.6))
    styles = looks(run)
    beside = dict(zip(styles, np.linspace(-_BESIDE, _BESIDE, len(styles)) * (len(styles) > 1), strict=True))
    for label, look in styles.items():
        for axis, key in ((error, "mse"), (coverage, "covered")):
            points = []
            for y, rows in enumerate(kinds.values()):
                mine = [row for row in rows if row["method"] == label]
                if mine:
                    value, spread = _mean(values(mine, key))
                    scale = _mean(values(mine, "oracle_mse"))[0] if key == "mse" else 1.0
                    points.append((value / scale, y + beside[label], spread / scale))
            x, y, errors = np.array(points).T
            style = {"color": look.colour, "marker": look.marker, "ms": 7, "ls": "none", "capsize": 2}
            axis.errorbar(x, y, xerr=errors, label=shown(label), mec="white", mew=0.6, **style)
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


def _mean(column: np.ndarray) -> tuple[float, float]:
    return float(column.mean()), standard_error(column)
