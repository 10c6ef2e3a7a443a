"""Numbers that say how good a posterior is, and the kernel distances behind them."""

from nsmbayes.diagnostics.kernels import median_lengthscale as median_lengthscale
from nsmbayes.diagnostics.metrics import covers as covers
from nsmbayes.diagnostics.metrics import mmd2 as mmd2
from nsmbayes.diagnostics.metrics import mse as mse

__all__ = ["mmd2", "mse", "covers", "median_lengthscale"]
