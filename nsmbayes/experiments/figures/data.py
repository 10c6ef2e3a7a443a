"""Figures of the observations."""

from typing import TypedDict

import numpy as np
from matplotlib.figure import Figure

from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.methods.baselines.summaries import quantile_summaries
from nsmbayes.plotting import plot_delay_profile, plot_trajectories
from nsmbayes.plotting.style import COLOURS, figure, styled
from nsmbayes.simulators import simulate_sets
from nsmbayes.tasks import radio, sir

_SETS = 1000  # number of simulated data sets in the background, the same as for the paper's RSNLE


class _Observed(TypedDict):
    n: int
    seed: int
    fraction: float


def _first(result: ExperimentResult) -> _Observed:
    """Size and seed of the first repeat's first data set, and the fraction affected by the task's own contamination."""
    row = result.repeats[0].rows[0]
    usual = row.contamination == result.task.default_contamination
    return {"n": row.n, "seed": row.seed, "fraction": (row.fraction or 0.0) if usual else 0.0}


def trajectories(result: ExperimentResult) -> Figure:
    """The epidemics behind the first repeat's summaries."""
    observed = sir.observed_reports(**_first(result))
    return plot_trajectories(observed.reported, is_outlier=observed.is_outlier)


def profile(result: ExperimentResult) -> Figure:
    """The average power of the first repeat's receivers."""
    observed = radio.observed_series(**_first(result))
    return plot_delay_profile(radio.TIMES, np.abs(observed.series) ** 2, is_outlier=observed.is_outlier)


@styled
def series(result: ExperimentResult) -> Figure:
    """A valid and an outlying time series |y(t)| of the first repeat."""
    observed = radio.observed_series(**_first(result))
    fig, (axis,) = figure(1, 1, (6.0, 3.2))
    for rows, colour, line, label in (
        (~observed.is_outlier, COLOURS["data"], "-", "valid"),
        (observed.is_outlier, COLOURS["outlier"], "--", "outlying"),
    ):
        if rows.any():
            one = np.abs(observed.series[np.argmax(rows)])
            axis.plot(radio.TIMES * 1e9, one, color=colour, ls=line, lw=0.9, label=label)
    axis.set(xlabel="delay in ns", ylabel="|y(t)|", yscale="log", xlim=(0, radio.TIMES[-1] * 1e9))
    for line in axis.legend(loc="upper right").get_lines():
        line.set_linewidth(2)
    return fig


@styled
def summaries(result: ExperimentResult) -> Figure:
    """What misleads RSNLE: two of its statistics, simulated, observed in every repeat, and of uncontaminated data."""
    seeds = [repeat.seed for repeat in result.repeats]
    first = result.arrays(seeds[0])["0:x"]
    _, sets = simulate_sets(result.task.prior, result.task, m=_SETS, n=len(first), seed=seeds[0])
    fig, (axis,) = figure(1, 1, (4.8, 3.6))
    axis.scatter(*_third_and_fourth(sets).T, s=8, alpha=0.5, lw=0, color=COLOURS["rsnle"], label="simulated")
    for name, marker, colour, label in (
        ("x", "x", "black", "observed"),
        ("clean", "^", COLOURS["clean"], "uncontaminated"),
    ):
        points = _third_and_fourth(np.stack([result.arrays(seed)[f"0:{name}"] for seed in seeds]))
        axis.scatter(*points.T, s=24, marker=marker, color=colour, label=label)
    axis.set(xlabel="$s_3$ (skewness)", ylabel="$s_4$ (tails)")
    fig.legend(loc="outside upper center", ncols=3, fontsize=9)
    return fig


def _third_and_fourth(sets: np.ndarray) -> np.ndarray:
    return quantile_summaries(sets)[:, 2:4]
