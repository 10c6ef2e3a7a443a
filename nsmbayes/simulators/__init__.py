"""User-defined simulators, and data sets simulated with them."""

from nsmbayes.simulators.base import (
    JaxSimulator,
    NumpySimulator,
    Simulator,
    as_simulator,
    check_gradients,
    require_differentiable,
)
from nsmbayes.simulators.datasets import sets_at, simulate_sets

__all__ = [
    "Simulator",
    "JaxSimulator",
    "NumpySimulator",
    "as_simulator",
    "require_differentiable",
    "check_gradients",
    "simulate_sets",
    "sets_at",
]
