"""How to train, for methods that can only train once they have seen the observations."""

from dataclasses import dataclass

from nsmbayes.training import TrainingSettings


@dataclass(frozen=True)
class TrainingPlan:
    """What `train` was asked for, kept for `build_posterior`."""

    seed: int
    settings: TrainingSettings
    progress: bool
