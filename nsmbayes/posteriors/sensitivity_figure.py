"""The figure of a sensitivity analysis: the effects of alternative choices."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nsmbayes._internal.figures import ROLES, figure, styled
from nsmbayes._internal.text import shorten

_MARKERS, _COLOURS = "osD^vPX*", ("#4477AA", "#D55E00", "#117733", "#942192", "#CCBB44", "#66CCEE")


@styled
def plot_sensitivity(found: Any) -> Figure:
    """Shifts of means on the left, ratios of standard deviations on the right; one line per alternative."""
    known = [each for each in found.changes if each.known]
    fig, (left, right) = figure(1, 2, (9.0, 1.6 + 0.33 * max(len(known), 2)))
    places = np.arange(len(known))[::-1]
    for j, name in enumerate(found.parameter_names):
        look = {"marker": _MARKERS[j % len(_MARKERS)], "color": _COLOURS[j % len(_COLOURS)], "ls": "", "ms": 6}
        left.plot([each.shift[j] for each in known], places, label=shorten(name, 20), **look)
        right.plot([each.ratio[j] for each in known], places, **look)
    left.axvline(0, color=ROLES["truth"], lw=1)
    right.axvline(1, color=ROLES["truth"], lw=1)
    left.set_yticks(places, [f"{each.choice} {each.change}" for each in known])
    right.set_yticks(places, [""] * len(known))
    reach = 1.15 * max(0.5, *(float(np.abs(each.shift).max()) for each in known)) if known else 1.0
    left.set(xlabel="shift of the mean, in standard deviations", xlim=(-reach, reach))
    width = 1.15 * max(np.log(1.5), *(float(np.abs(np.log(each.ratio)).max()) for each in known)) if known else 1.0
    right.set(xlabel="standard deviation, times", xscale="log", xlim=(np.exp(-width), np.exp(width)))
    ticks = [tick for tick in (0.1, 0.25, 0.5, 0.7, 1, 1.4, 2, 4, 10) if abs(np.log(tick)) <= width]
    right.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    right.set_xticks([], minor=True)
    for axis in (left, right):
        axis.set_ylim(-0.6, max(len(known), 1) - 0.4)
        axis.grid(axis="y", color="#dddddd", lw=0.6)
    left.legend(loc="best")
    return fig
