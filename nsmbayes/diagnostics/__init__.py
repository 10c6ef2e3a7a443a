"""Numbers that say how good a posterior is, whether its simulator is right, and the distances behind them."""

from nsmbayes.diagnostics.kernels import median_lengthscale as median_lengthscale
from nsmbayes.diagnostics.metrics import covers as covers
from nsmbayes.diagnostics.metrics import mmd2 as mmd2
from nsmbayes.diagnostics.metrics import mse as mse
from nsmbayes.diagnostics.reach import Reach as Reach
from nsmbayes.diagnostics.reach import reach as reach
from nsmbayes.diagnostics.verdict import Outcome as Outcome
from nsmbayes.diagnostics.verdict import Verdict as Verdict
from nsmbayes.diagnostics.verdict import judge as judge
