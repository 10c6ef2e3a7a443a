"""Losses of a point, at several noise levels, and of a data set, by evaluation or by sufficient statistics."""

from nsmbayes.losses.evaluated import Loss, NLELoss, NLESetting, NSMLoss, NSMSetting
from nsmbayes.losses.noise_levels import DEFAULT_NOISE_LEVELS, check_noise_levels, noisy_points
from nsmbayes.losses.pointwise import Quadratic, nsm, nsm_quadratic, score_matching

__all__ = [
    "Loss",
    "NLELoss",
    "NLESetting",
    "NSMLoss",
    "NSMSetting",
    "Quadratic",
    "nsm",
    "nsm_quadratic",
    "score_matching",
    "DEFAULT_NOISE_LEVELS",
    "check_noise_levels",
    "noisy_points",
]
