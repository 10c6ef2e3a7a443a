"""Calls of a simulator for numbered rows, in this process or elsewhere; without JAX, so that processes start fast."""

from nsmbayes.calls.functions import InBatches, OneByOne
from nsmbayes.calls.generators import RowGenerators
from nsmbayes.calls.programs import Program
from nsmbayes.calls.work import Caller, Outcome, RowStatus, Work, evaluate, width_error

__all__ = [
    "Caller",
    "OneByOne",
    "InBatches",
    "Program",
    "RowGenerators",
    "RowStatus",
    "Work",
    "Outcome",
    "evaluate",
    "width_error",
]
