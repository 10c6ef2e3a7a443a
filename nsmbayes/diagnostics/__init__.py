"""Numbers that say how good a posterior or a method is, and the kernel distances behind some of them."""

from nsmbayes.diagnostics.calibration_map import calibration as calibration
from nsmbayes.diagnostics.calibration_result import CalibrationMap as CalibrationMap
from nsmbayes.diagnostics.comparison import Comparison as Comparison
from nsmbayes.diagnostics.comparison import compare as compare
from nsmbayes.diagnostics.kernels import median_lengthscale as median_lengthscale
from nsmbayes.diagnostics.metrics import covers as covers
from nsmbayes.diagnostics.metrics import mmd2 as mmd2
from nsmbayes.diagnostics.metrics import mse as mse

__all__ = ["mmd2", "mse", "covers", "median_lengthscale"]
