"""Figures of posteriors, of their calibration and robustness, and of the tasks' data."""

from nsmbayes.plotting.calibration import plot_calibration
from nsmbayes.plotting.excess import plot_excess
from nsmbayes.plotting.failures import plot_failures
from nsmbayes.plotting.influence import plot_influence
from nsmbayes.plotting.posteriors import PairLook, draw_pairs, plot_marginals, plot_pairs
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
    "plot_trajectories",
    "plot_delay_profile",
    "draw_pairs",
    "PairLook",
]
