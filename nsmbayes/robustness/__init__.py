"""Robustness as software: certificates for the network that was fitted, and influence functions to see it."""

from nsmbayes.posteriors import Influence
from nsmbayes.robustness.certificate import AtDraws, Certificate, Check
from nsmbayes.robustness.certify import certify
from nsmbayes.robustness.influence import DensityInfluence, line, pif_delta, pif_kl

__all__ = [
    "AtDraws",
    "Certificate",
    "Check",
    "certify",
    "pif_kl",
    "pif_delta",
    "line",
    "Influence",
    "DensityInfluence",
]
