"""Settings for training a surrogate."""

from dataclasses import dataclass
from typing import Any, Literal

import optax

from nsmbayes._internal import checks
from nsmbayes.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings for training a surrogate. The defaults are those of the paper.

    With schedule="cosine", the learning rate falls to zero over `max_epochs`.
    """

    learning_rate: float = 5e-4
    weight_decay: float = 1e-5
    batch_size: int = 128
    validation_fraction: float = 0.2
    patience: int = 20
    max_epochs: int = 1000
    schedule: Literal["constant", "cosine"] = "constant"

    def __post_init__(self):
        checks.positive(self.learning_rate, "learning_rate")
        if checks.real(self.weight_decay, "weight_decay") < 0:
            raise InputError(f"`weight_decay` must not be negative; got {self.weight_decay}.")
        checks.integer(self.batch_size, "batch_size", at_least=1)
        if checks.fraction(self.validation_fraction, "validation_fraction") == 0:
            raise InputError("`validation_fraction` must be above 0: early stopping needs validation data.")
        checks.integer(self.patience, "patience", at_least=1)
        checks.integer(self.max_epochs, "max_epochs", at_least=1)
        checks.choice(self.schedule, "schedule", ("constant", "cosine"))

    def optimiser(self, m: int) -> optax.GradientTransformation:
        """Adam on the loss plus an L2 penalty, for m training simulations."""
        rate = self.learning_rate
        if self.schedule == "cosine":
            rate = optax.cosine_decay_schedule(rate, self.max_epochs * (m // min(self.batch_size, m)))
        return optax.chain(optax.add_decayed_weights(self.weight_decay), optax.adam(rate))


def as_settings(settings: Any, default: TrainingSettings) -> TrainingSettings:
    """Return `settings`, or `default` if it is None; raise `InputError` for other types."""
    if settings is None:
        return default
    return checks.instance(settings, "settings", TrainingSettings, "e.g. nsmbayes.TrainingSettings(max_epochs=100)")
