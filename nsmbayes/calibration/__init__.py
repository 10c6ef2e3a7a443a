"""Choosing the learning rate by bootstrap coverage."""

from nsmbayes.calibration.base import (
    Calibration,
    CalibrationProblem,
    CalibrationResult,
    CalibrationStatus,
    ResampledProblem,
    as_calibration,
)
from nsmbayes.calibration.batched import Resampling, calibrate_many
from nsmbayes.calibration.closed_form import ClosedFormProblem
from nsmbayes.calibration.grid import GridCalibration
from nsmbayes.calibration.held_out import UNCHECKED, SurrogateCheck, SurrogateTest
from nsmbayes.calibration.path import PathCalibration
from nsmbayes.calibration.regions import region_contains, region_level, relative_radii
from nsmbayes.calibration.reweighting import ReweightingCalibration
from nsmbayes.calibration.root import RootCalibration
from nsmbayes.calibration.sampled import (
    CompressedProblem,
    CountedProblem,
    InterpolatedProblem,
    SampledProblem,
)
from nsmbayes.calibration.stochastic import StochasticCalibration

__all__ = [
    "Calibration",
    "CalibrationProblem",
    "CalibrationResult",
    "CalibrationStatus",
    "ClosedFormProblem",
    "SampledProblem",
    "CompressedProblem",
    "CountedProblem",
    "InterpolatedProblem",
    "ResampledProblem",
    "RootCalibration",
    "StochasticCalibration",
    "PathCalibration",
    "ReweightingCalibration",
    "GridCalibration",
    "UNCHECKED",
    "SurrogateCheck",
    "SurrogateTest",
    "Resampling",
    "as_calibration",
    "calibrate_many",
    "region_contains",
    "region_level",
    "relative_radii",
]
