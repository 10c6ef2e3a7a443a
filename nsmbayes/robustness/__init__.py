"""Robustness as software: certificates for the network that was fitted, and influence functions to see it."""

from nsmbayes.posteriors.certified import Certified
from nsmbayes.robustness.certificate import Certificate as Certificate
from nsmbayes.robustness.certificate import Check as Check
from nsmbayes.robustness.certify import certify as certify
from nsmbayes.robustness.influence import DensityInfluence as DensityInfluence
from nsmbayes.robustness.influence import Influence as Influence
from nsmbayes.robustness.influence import leave_one_out as leave_one_out
from nsmbayes.robustness.influence import line as line
from nsmbayes.robustness.influence import pif_delta as pif_delta
from nsmbayes.robustness.influence import pif_kl as pif_kl
from nsmbayes.robustness.outliers import Outlier as Outlier
from nsmbayes.robustness.outliers import outlier_table as outlier_table
from nsmbayes.robustness.outliers import outliers as outliers

# Posteriors come before robustness in the order of imports, so that they cannot call it by name.
Certified.certify = staticmethod(certify)
