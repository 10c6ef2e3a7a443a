"""Weights that limit the influence of outliers: radial functions of the Mahalanobis distance from the bulk."""

from nsmbayes.weights.base import Weight
from nsmbayes.weights.constant import Constant
from nsmbayes.weights.evaluation import Weighting, as_weight, evaluate, evaluate_each, evaluate_many, overall_many
from nsmbayes.weights.excess import Excess, as_excess
from nsmbayes.weights.imq import IMQ
from nsmbayes.weights.plateau_imq import PlateauIMQ
from nsmbayes.weights.squared_exponential import SquaredExponential

__all__ = [
    "Weight",
    "IMQ",
    "PlateauIMQ",
    "SquaredExponential",
    "Constant",
    "Excess",
    "as_excess",
    "Weighting",
    "as_weight",
    "evaluate",
    "evaluate_each",
    "evaluate_many",
    "overall_many",
]
