"""Stored training settings, for methods that need the observations to train."""

from dataclasses import dataclass

from nsmbayes.training import TrainingSettings


@dataclass(frozen=True)
class TrainingPlan:
    """Arguments of `train`, stored for `build_posterior`."""

    seed: int
    settings: TrainingSettings
    progress: bool
