"""The figure of a calibration map."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes._internal.figures import ROLES, figure, styled
from nsmbayes._internal.text import shorten
from nsmbayes.diagnostics.uniformity import Band, band

_KINDS = ((ROLES["clean"], "-"), (ROLES["outlier"], (0, (5, 1.5))))  # colours and lines of clean and contaminated data


@styled
def plot_calibration_map(found: Any) -> Figure:
    """Coverage against level, and the distribution functions of ranks and TARP minus the uniform one, with bands."""
    looks = dict(zip(found.answers, _KINDS, strict=False))
    names = [*found.parameter_names, "TARP"]
    across = 2 if len(names) == 3 else 3
    rows = -(-(len(names) + 1) // across)
    fig, axes = figure(rows, across, (3.6 * across, 2.9 * rows))
    fewest = min(len(each.values) for each in found.curves)
    shared = band(fewest, found.alarm_level)
    _coverage(axes[0], found, looks, shared)
    for axis, name in zip(axes[1:], names, strict=False):
        _curve(axis, found, name, looks, shared)
    for axis in axes[len(names) + 1 :]:
        axis.set_axis_off()
    fig.suptitle(f"{found.label}: {found.datasets:,} data sets of {found.n:,} observations\n", fontsize=11)
    return fig


def _coverage(axis: Axes, found: Any, looks: dict[str, Any], shared: Band) -> None:
    axis.plot([0, 1], [0, 1], color=ROLES["truth"], lw=1)
    axis.fill_between(*_ends(shared, difference=False), color=ROLES["prior"], alpha=0.25, lw=0)
    for data, (colour, line) in looks.items():
        (values,) = [each.values for each in found.curves if (each.data, each.name) == (data, "coverage")]
        axis.plot(*_steps(values), color=colour, ls=line, lw=2, label=data)
        rows = [each for each in found.coverage if each.data == data]
        rate = np.array([each.rate for each in rows])
        ends = np.abs(np.array([[each.low, each.high] for each in rows]).T - rate)
        axis.errorbar([each.level for each in rows], rate, yerr=ends, fmt="o", ms=4, color=colour, capsize=2, lw=1.2)
    axis.set(xlabel="level of the region", ylabel="contains the truth", title="coverage", xlim=(0, 1), ylim=(0, 1.02))
    axis.legend(loc="upper left")


def _curve(axis: Axes, found: Any, name: str, looks: dict[str, Any], shared: Band) -> None:
    axis.axhline(0, color=ROLES["truth"], lw=1)
    axis.fill_between(*_ends(shared, difference=True), color=ROLES["prior"], alpha=0.25, lw=0)
    for data, (colour, line) in looks.items():
        (one,) = [each for each in found.curves if (each.data, each.name) == (data, name)]
        at, height = _steps(one.values)
        axis.plot(at, height - at, color=colour, ls=line, lw=1.6)
    axis.set(xlim=(0, 1), title="TARP" if name == "TARP" else f"rank of {shorten(name)}", xlabel="u")
    axis.set_ylabel("fraction below u, minus u")


def _steps(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The empirical distribution function, with its corners."""
    at = np.concatenate([[0.0], np.repeat(np.sort(values), 2), [1.0]])
    return at, np.repeat(np.arange(len(values) + 1) / len(values), 2)


def _ends(shared: Band, *, difference: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, with the lower and upper end of a band there, for a curve or its difference from the uniform one."""
    points = np.concatenate([[0.0], shared.points, [1.0]])
    low, high = (np.concatenate([[0.0], side, [1.0]]) for side in (shared.low, shared.high))
    return (points, low - points, high - points) if difference else (points, low, high)
