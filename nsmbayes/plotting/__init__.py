"""Figures of posteriors, of their calibration and robustness, and of the data of tasks."""

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from nsmbayes.plotting.calibration import plot_calibration
from nsmbayes.plotting.excess import plot_excess
from nsmbayes.plotting.failures import plot_failures
from nsmbayes.plotting.influence import plot_influence
from nsmbayes.plotting.posteriors import PairLook, draw_pairs, plot_marginals, plot_pairs
from nsmbayes.plotting.predictive import draw_predictive, plot_predictive
from nsmbayes.plotting.tasks import plot_delay_profile, plot_trajectories
from nsmbayes.plotting.weights import plot_weights

__all__ = [
    "plot_weights",
    "plot_marginals",
    "plot_pairs",
    "plot_calibration",
    "plot_excess",
    "plot_influence",
    "plot_failures",
    "plot_predictive",
    "draw_predictive",
    "FIGURES",
    "plot_trajectories",
    "plot_delay_profile",
    "draw_pairs",
    "PairLook",
]


def _alone(plot: Callable[..., Figure]) -> Callable[..., Figure]:
    """Turn a function that plots posteriors by label into one that plots a single posterior."""

    def plot_one(posterior: Any, **options: Any) -> Figure:
        return plot({posterior.label: posterior}, **options)

    return plot_one


FIGURES: dict[str, Callable[..., Figure]] = {
    "marginals": _alone(plot_marginals),
    "pairs": _alone(plot_pairs),
    "weights": plot_weights,
    "predictive": plot_predictive,
    "influence": _alone(plot_influence),
    "excess": plot_excess,
}
"""The functions behind `posterior.plot(kind)`, by kind: each takes a posterior, and options."""
