"""Diagnostics of posteriors, methods and simulators: calibration, misspecification, comparison, distances."""

from nsmbayes.diagnostics.calibration_map import calibration
from nsmbayes.diagnostics.calibration_result import CalibrationMap
from nsmbayes.diagnostics.comparison import Comparison, compare
from nsmbayes.diagnostics.kernels import median_lengthscale
from nsmbayes.diagnostics.metrics import covers, mmd2, mse
from nsmbayes.diagnostics.reach import Reach, reach
from nsmbayes.diagnostics.recalibration import Recalibration, recalibrate
from nsmbayes.diagnostics.validity import Validity, validity
from nsmbayes.diagnostics.verdict import Outcome, Verdict, judge

__all__ = [
    "calibration",
    "CalibrationMap",
    "recalibrate",
    "Recalibration",
    "compare",
    "Comparison",
    "judge",
    "Verdict",
    "Outcome",
    "reach",
    "Reach",
    "validity",
    "Validity",
    "mmd2",
    "mse",
    "covers",
    "median_lengthscale",
]
