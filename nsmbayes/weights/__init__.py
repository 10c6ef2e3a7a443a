"""Weights that deny outliers their influence, and the robust location and scatter they are measured by."""

from nsmbayes.weights.base import Weight
from nsmbayes.weights.batched_mcd import fit_batch, mcd_batch
from nsmbayes.weights.constant import Constant
from nsmbayes.weights.imq import IMQ
from nsmbayes.weights.location_scatter import ESTIMATORS, LocationScatter, evaluate, evaluate_many, whole_many
from nsmbayes.weights.plateau_imq import PlateauIMQ
from nsmbayes.weights.registry import WEIGHTS, from_config
from nsmbayes.weights.robust import fit_location_scatter
from nsmbayes.weights.squared_exponential import SquaredExponential

__all__ = [
    "Weight",
    "IMQ",
    "PlateauIMQ",
    "SquaredExponential",
    "Constant",
    "WEIGHTS",
    "from_config",
    "LocationScatter",
    "ESTIMATORS",
    "evaluate",
    "evaluate_many",
    "whole_many",
    "fit_location_scatter",
    "mcd_batch",
    "fit_batch",
]
