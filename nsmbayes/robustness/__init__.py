"""Robustness: certificates for the fitted network, and posterior influence functions."""

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
