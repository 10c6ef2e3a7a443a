"""Live updates of NSM-Bayes-amortised: its sums change by those of the moved rows, and its draws are reweighted."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from nsmbayes.explore.answers import Answer, DrawsAnswer
from nsmbayes.explore.choices import Choices
from nsmbayes.explore.explorer import Explorer
from nsmbayes.explore.following import Follower
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.blocks import BlockedLoss
from nsmbayes.losses.corrected import corrected_alike
from nsmbayes.losses.interpolated import InterpolatedLoss, RowLosses, Sums, coefficients_at
from nsmbayes.losses.pieces import Piece
from nsmbayes.posteriors import AmortisedPosterior
from nsmbayes.priors import constrain_rows
from nsmbayes.samplers import Target
from nsmbayes.weights import Weighting

_DRAWS = 1000  # number of draws that are reweighted
_ENOUGH = 0.3  # minimum effective fraction of them; otherwise new ones are drawn


class AmortisedExplorer(Explorer[AmortisedPosterior]):
    """Reweights the draws at rest while something moves; if the weights are too uneven, draws rough new ones."""

    def __init__(self, method: Any, posterior: AmortisedPosterior, choices: Choices, **options: Any):
        super().__init__(method, posterior, choices, **options)
        self._stream = (self.seed, 1)
        self._follower = Follower(self.seed)
        self._positions = posterior.thinned(_DRAWS)
        self._theta = constrain_rows(posterior.target.prior, self._positions)
        self._interpolation = posterior.summarised.loss.interpolation
        self._coefficients = np.moveaxis(coefficients_at(self._interpolation, self._theta), 1, 0)
        self._losses = self._total_losses(posterior.summarised.sums)
        self._totals: tuple[float | None, NSMSetting, Sums] | None = None
        self._resting: dict[int, Sums] = {}  # sums of single rows at rest, with the zeta of the totals

    def _build(self, x: Float[np.ndarray, "n d_x"], choices: Choices) -> AmortisedPosterior:
        own = self.own_prior
        prior = None if own is None else choices.prior(own)
        weight = choices.weight(self.method.weight)
        return self.method.build_posterior(x, beta=choices.beta, prior=prior, weight=weight, seed=self.seed)

    def _own(
        self,
        noisy: Float[np.ndarray, "n d_x"],
        multiples: Float[np.ndarray, " n"],
        rows: Int[np.ndarray, " k"],
        choices: Choices,
    ) -> tuple[Answer | None, tuple[str, ...]]:
        sums = self.sums(noisy, multiples, rows, choices)
        logs = self.choices.beta * self._losses - choices.beta * self._total_losses(sums)
        own = self.own_prior
        if own is not None and choices.prior(own) is not self.choices.prior(own):
            logs += choices.prior(own).log_prob(self._theta) - self.choices.prior(own).log_prob(self._theta)
        reweighted = DrawsAnswer(self._theta, logs)
        if reweighted.effective >= _ENOUGH * len(self._theta):
            return reweighted, (f"Draws reweighted, worth {reweighted.effective:,.0f} of {len(self._theta):,}.",)
        loss = InterpolatedLoss(self._interpolation, jnp.asarray(sums.A), jnp.asarray(sums.B))
        loss = corrected_alike(loss, self.posterior.target.loss)
        found = self._follower.follow(
            Target(self._support(choices), loss, jnp.asarray(choices.beta)), self._positions[:: _DRAWS // 200]
        )
        if found is None:
            return None, ("The draws could not follow the posterior; it is built again when you let go.",)
        return found, (f"Importance draws, worth {found.effective:,.0f}.",)

    def sums(
        self,
        noisy: Float[np.ndarray, "n d_x"],
        multiples: Float[np.ndarray, " n"],
        rows: Int[np.ndarray, " k"],
        choices: Choices,
    ) -> Sums:
        """The statistics of the data with some rows changed: those at rest, minus the old rows, plus the new ones."""
        setting, sums = self._at_rest(choices)
        if not len(rows):
            return sums
        after = Piece.of(setting, noisy, multiples, self.seed)
        for i in map(int, rows):
            if i not in self._resting:
                before = Piece.of(setting, self.posterior.noisy_x, self.multiples, self.seed)
                self._resting[i] = self._row(before, i)
            old, new = self._resting[i], self._row(after, i)
            sums = Sums(sums.A - old.A + new.A, sums.B - old.B + new.B)
        return sums

    def _at_rest(self, choices: Choices) -> tuple[NSMSetting, Sums]:
        """The loss with the chosen zeta, and the statistics of the rows at rest."""
        if self._totals is None or self._totals[0] != choices.zeta:
            own = self.posterior.setting
            weighting = Weighting(choices.live_weight(own.weighting.weight), own.weighting.centre)
            setting = own._replace(weighting=weighting)
            piece = Piece.of(setting, self.posterior.noisy_x, self.multiples, self.seed)
            same = choices.zeta == self.choices.zeta
            sums = self.posterior.summarised.sums if same else piece.summed(self._interpolation)[0]
            self._totals, self._resting = (choices.zeta, setting, sums), {}
        return self._totals[1:]

    def _row(self, piece: Piece, row: int) -> Sums:
        """The statistics of one row, at the same noise nodes as in the whole data set."""
        source = piece.source
        assert isinstance(source, BlockedLoss)  # data sets large enough for counting in cells are rejected
        place = int(np.flatnonzero(piece.order == row)[0])
        if source.x.shape[1] == 1:  # nodes on a lattice, independent of the other rows
            alone = source.setting.loss(source.x[place : place + 1])
            multiples = np.ones(piece.n) if source.multiples is None else source.multiples
            loss = alone.reweighted(multiples[place : place + 1])
        else:
            number, within = divmod(place, source.size)
            loss = piece.block(number).only(np.array([within]))
        return RowLosses.of(self._interpolation, loss).sums(len(self._interpolation.noise_levels))

    def _total_losses(self, sums: Sums) -> Float[np.ndarray, " draws"]:
        """The loss of the whole data set at the draws."""
        c = self._coefficients
        found = ((c @ sums.A + 2 * sums.B[:, None]) * c).sum(axis=(0, 2))
        check = self.posterior.surrogate_check
        return found if check is None or (correction := check.total) is None else found - correction.at(self._theta)
