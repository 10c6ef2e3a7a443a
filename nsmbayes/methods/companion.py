"""A density for a family that has none: it identifies excess observations, more than the model explains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.losses.statistics import LossRecipe
from nsmbayes.methods.nle import NLE
from nsmbayes.priors import GaussianPrior, unconstrained
from nsmbayes.surrogates import MixtureDensity
from nsmbayes.suspects import Suspects, find_suspects
from nsmbayes.training import TrainingSettings
from nsmbayes.weights import Excess

_PREFIX = "companion."


class Companion(NLE):
    """A mixture density network that is trained, saved and used as part of another method."""

    def train_for(
        self, d_x: int, seed: int, given: TrainingSettings | None, devices: Sequence[Any] | None, progress: bool
    ) -> None:
        """Train like NLE, for at most as many epochs as in `given`, the settings of the other method."""
        usual = self.default_training(d_x)
        most = usual.max_epochs if given is None else min(usual.max_epochs, given.max_epochs)
        self.train(seed, settings=replace(usual, max_epochs=most), devices=devices, progress=progress)

    @property
    def mixture(self) -> MixtureDensity:
        """The trained density."""
        return checks.instance(self.density, "density", MixtureDensity, "a mixture")

    def suspects(
        self, excess: Excess, recipe: LossRecipe, prior: GaussianPrior, x: Float[np.ndarray, "n d_x"], seed: int
    ) -> Suspects:
        """Search for observations that are more than the model explains."""
        noisy = recipe.dequantise(x)
        return find_suspects(excess, unconstrained(prior), self.mixture, noisy, recipe.centre, seed)

    def saved_arrays(self) -> dict[str, np.ndarray]:
        """Return the trained state as arrays, with a prefix in their names."""
        return {f"{_PREFIX}{name}": array for name, array in self._saved_arrays().items()}

    def restored(self, arrays: Mapping[str, np.ndarray], d_x: int) -> "Companion | None":
        """Restore the trained state from `arrays`; None if they contain no companion."""
        own = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
        if not own:
            return None
        self._restore(own)
        if self.d_x != d_x:
            raise InputError(f"The saved density has {self.d_x} columns, and the family {d_x}. Train the model again.")
        return self
