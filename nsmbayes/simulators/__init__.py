"""User-defined simulators, and simulated data sets."""

from nsmbayes.simulators.base import (
    JaxSimulator,
    NumpySimulator,
    Simulator,
    as_simulator,
    check_gradients,
    require_differentiable,
)
from nsmbayes.simulators.batch import BatchSimulator
from nsmbayes.simulators.command import CommandSimulator
from nsmbayes.simulators.datasets import sets_at, simulate_sets
from nsmbayes.simulators.numbered import MOST_ROWS, draw_theta

__all__ = [
    "Simulator",
    "JaxSimulator",
    "NumpySimulator",
    "BatchSimulator",
    "CommandSimulator",
    "as_simulator",
    "require_differentiable",
    "check_gradients",
    "simulate_sets",
    "sets_at",
    "MOST_ROWS",
    "draw_theta",
]
