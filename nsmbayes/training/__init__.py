"""Training of networks on simulations."""

from nsmbayes.training.augmentation import correlated_noise, independent_noise
from nsmbayes.training.density import fit_density
from nsmbayes.training.loop import (
    Augment,
    BatchLoss,
    PointLoss,
    Stopped,
    TrainingHistory,
    fit,
    held_out_rows,
    interrupts_are_final,
)
from nsmbayes.training.settings import TrainingSettings, as_settings
from nsmbayes.training.stream import Block, Stream

__all__ = [
    "TrainingSettings",
    "TrainingHistory",
    "Stopped",
    "as_settings",
    "fit",
    "fit_density",
    "held_out_rows",
    "interrupts_are_final",
    "Stream",
    "Block",
    "PointLoss",
    "BatchLoss",
    "Augment",
    "independent_noise",
    "correlated_noise",
]
