"""Calls of a simulator for numbered rows, here or elsewhere. Nothing in this room needs JAX: processes start fast."""

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
