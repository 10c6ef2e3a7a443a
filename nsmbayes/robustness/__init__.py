"""Robustness as software: certificates for the network that was fitted, and influence functions to see it."""

from nsmbayes.posteriors.certified import Certified
from nsmbayes.robustness.certificate import Certificate as Certificate
from nsmbayes.robustness.certificate import Check as Check
from nsmbayes.robustness.certify import certify as certify

# Posteriors come before robustness in the order of imports, so that they cannot call it by name.
Certified.certify = staticmethod(certify)
