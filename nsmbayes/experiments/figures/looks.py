"""Styles that distinguish the methods of an experiment, legends and axes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import group_by
from nsmbayes.plotting.style import LOOKS, Look

_MARKS = ((0.7, (1, 1.5, 2, 3, 4, 5, 6, 8)), (1.8, (1, 2, 5)), (np.inf, (1,)))  # ticks by the decades of an axis
_PALEST = 0.65  # fraction of white in the first of several lines of one method


def looks(result: ExperimentResult) -> dict[str, Look]:
    """The style of each label: that of its method; several labels of one method range from pale to full colour."""
    found = {}
    for name, same in group_by(result.methods.values(), lambda method: method.method).items():
        look, lines = LOOKS[name], [other.line for other in LOOKS.values()]
        for method, white in zip(same, np.linspace(_PALEST * (len(same) > 1), 0, len(same)), strict=True):
            colour = to_hex(white + (1 - white) * np.array(to_rgb(look.colour)))
            line = look.line if len(same) == 1 else lines[len(found) % len(lines)]
            found[method.label] = Look(colour, line, look.marker)
    return {label: found[label] for label in result.methods}


def legend_above(fig: Figure, *axes: Axes, columns: int = 4) -> None:
    """Add one legend for these panels above the figure, where it covers no data."""
    entries = [axis.get_legend_handles_labels() for axis in axes]
    by_label = {label: handle for handles, labels in entries for handle, label in zip(handles, labels, strict=True)}
    inches = 0.5 + 0.07 * max(map(len, by_label), default=0)  # width of a line and its label
    fig.legend(
        list(by_label.values()),
        list(by_label),
        loc="outside upper center",
        ncols=max(1, min(columns, len(by_label), int(fig.get_figwidth() / inches))),
        fontsize=9,
        handlelength=2.8,
    )


def logarithmic(*axes: Axes, x: bool = False, y: bool = False) -> None:
    """Make axes logarithmic, with as many plain numbers as fit. Call it after everything is drawn."""
    for axis in axes:
        for name in "x" * x + "y" * y:
            axis.set(**{f"{name}scale": "log"})
            side = axis.xaxis if name == "x" else axis.yaxis
            axis.autoscale_view()
            low, high = side.get_view_interval()
            marks = next(subs for decades, subs in _MARKS if np.log10(high / low) < decades)
            side.set_major_locator(LogLocator(subs=marks))
            side.set_major_formatter(FuncFormatter(lambda value, _: axis_number(value)))
            side.set_minor_formatter(NullFormatter())


def axis_number(value: float) -> str:
    """Format a number for an axis, without many zeros."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    if -3 < exponent < 4:
        return f"{value:g}"
    digit = f"{value / 10.0**exponent:g}"
    factor = "" if digit == "1" else f"{digit}\\cdot"
    return f"${factor}10^{{{exponent}}}$"
