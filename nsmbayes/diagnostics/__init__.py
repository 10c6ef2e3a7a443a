from nsmbayes.diagnostics.metrics import covers as covers
from nsmbayes.diagnostics.metrics import median_lengthscale as median_lengthscale
from nsmbayes.diagnostics.metrics import mmd2 as mmd2
from nsmbayes.diagnostics.metrics import mse as mse
