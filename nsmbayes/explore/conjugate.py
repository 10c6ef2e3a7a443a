"""Live updates of NSM-Bayes-conj: its posterior is a closed form of a sum, in which one term changes."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from nsmbayes.explore.answers import Answer, GaussianAnswer
from nsmbayes.explore.choices import Choices
from nsmbayes.explore.explorer import Explorer
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.losses.statistics import DataSetLoss, total_loss
from nsmbayes.posteriors import ConjugatePosterior

_EXACT = "Closed form, for location, scatter and factors as they were fitted last."


class ConjugateExplorer(Explorer[ConjugatePosterior]):
    """Stores the sum over all rows; moved rows are subtracted from it and added again with their new values."""

    _stream = (0, 1)  # the same as in `LossRecipe.dequantise`

    def __init__(self, method: Any, posterior: ConjugatePosterior, choices: Choices, **options: Any):
        super().__init__(method, posterior, choices, **options)
        self._totals: tuple[float | None, DataSetLoss, Quadratic] | None = None

    def _build(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> ConjugatePosterior:
        own = self.method.build_posterior(
            x,
            beta=choices.beta,
            prior=choices.prior(self.method.prior),
            weight=choices.weight(self.method.weight),
            seed=self.seed,
        )
        return ConjugatePosterior(  # with the resolution from the calibration at the start
            own.provenance,
            own.prior,
            own.statistics,
            own.beta,
            resolution=self.posterior.resolution,
            suspects=own.suspects,
            by_distance=self.method.excess is not None and own.suspects is None,
            surrogate_check=own.surrogate_check,
        )

    def _own(
        self,
        noisy: Float[np.ndarray, "n d_x"],
        multiples: Float[np.ndarray, " n"],
        rows: Int[np.ndarray, " k"],
        choices: Choices,
    ) -> tuple[Answer, tuple[str, ...]]:
        loss, total = self._total(choices)
        before, counted = self.posterior.noisy_x, self.multiples
        for i in rows:
            old = total_loss(loss, before[i : i + 1], counted[i : i + 1])
            new = total_loss(loss, noisy[i : i + 1], multiples[i : i + 1])
            total = Quadratic(*(a - b + c for a, b, c in zip(total, old, new, strict=True)))
        prior, resolution = choices.prior(self.method.prior), self.posterior.resolution
        mean, precision = gaussian_posterior(prior, total, choices.beta, resolution)
        return GaussianAnswer(mean, np.sqrt(np.diag(np.linalg.inv(precision)))), (_EXACT,)

    def _total(self, choices: Choices) -> tuple[DataSetLoss, Quadratic]:
        """The loss of one row with the chosen zeta, and the sum over the rows at rest."""
        if self._totals is None or self._totals[0] != choices.zeta:
            statistics = self.posterior.statistics
            recipe = dataclasses.replace(statistics.recipe, weight=choices.live_weight(statistics.recipe.weight))
            loss = recipe.around(self._centre)
            self._totals = (choices.zeta, loss, total_loss(loss, self.posterior.noisy_x, self.multiples))
        return self._totals[1:]
