"""Figures of the data of built-in tasks, in the usual form of their fields."""

import numpy as np
from jaxtyping import Bool, Float, Num
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.plotting.style import COLOURS, OUTLIERS, figure, outlier_mask, styled


@styled
def plot_trajectories(reported: Num[np.ndarray, "n T"], *, is_outlier: Bool[np.ndarray, " n"] | None = None) -> Figure:
    """Plot the reported cases of many epidemics at times 1, ..., T, one line per epidemic; known outliers are dashed.

    The axis ends at the last report.
    """
    reported = checks.matrix(reported, "reported")
    known = outlier_mask(is_outlier, len(reported))
    fig, (axis,) = figure(1, 1, (6.4, 3.4))
    times = np.arange(1.0, reported.shape[1] + 1)
    for rows, role, label, look in (
        (~known, "data", "observed epidemics", {"alpha": 0.3, "linewidths": 0.8}),
        (known, "outlier", OUTLIERS, {"linestyles": "--", "linewidths": 1.4}),
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
    """Plot the power that many receivers recorded, in decibels at `times` in seconds: the average, and one series.

    Known outliers are drawn separately, with their average and the first series.
    """
    power = checks.matrix(power, "power")
    if power.min() <= 0:
        raise InputError(f"`power` must be positive, for decibels; got {power.min():g}. Pass |y(t)|^2 of noisy series.")
    times = checks.vector(times, "times", length=power.shape[1])
    known = outlier_mask(is_outlier, len(power))
    fig, (axis,) = figure(1, 1, (6.4, 3.6))
    for rows, role, label, style in (
        (~known, "data", "observations", "-"),
        (known, "outlier", OUTLIERS, "--"),
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
