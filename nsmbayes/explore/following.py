"""Draws that follow a posterior as it moves, and the NLE posterior of data that move."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.errors import ConvergenceError
from nsmbayes.explore.answers import DrawsAnswer
from nsmbayes.losses import NLELoss
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import Target, log_prior, total_loss
from nsmbayes.samplers.independence import adapt, evaluation, resample
from nsmbayes.samplers.metropolis import Evaluate, log_weights_of
from nsmbayes.samplers.recounted import counted_losses, losses_at
from nsmbayes.samplers.students import Population, around
from nsmbayes.surrogates import Density

_STAGE, _PER_PARAMETER = 400, 40  # number of draws of a stage: minimum, and per parameter
_NEAR = 200  # number of draws that the next search starts from
_KEPT = 800  # number of stored draws of an NLE posterior
_MOVED, _WORTH = 3, 0.5  # for reweighting: maximum number of moved rows, and minimum relative effective sample size


class Follower:
    """Weighted draws of one target after another, each started from the draws of the previous one.

    They are importance draws from Student distributions that are roughly fitted to the target in stages
    (`samplers.adapt`): sufficient for a plot, and unbiased up to the noise of a few hundred draws.
    """

    def __init__(self, seed: int):
        self._key, self._near = seed_key(seed), None
        self._found: Population | None = None  # the last draws

    @double_precision
    def follow(
        self, target: Target, near: Float[np.ndarray, "k d"] | None = None, evaluate: Evaluate | None = None
    ) -> DrawsAnswer | None:
        """Draw from a target; None if the search fails. `near` are draws of a similar target, if known."""
        near = self._near if near is None else near
        beta, first = float(target.beta), None if near is None else around(near)
        key_start, key = jax.random.split(self._key)
        stage = max(_STAGE, _PER_PARAMETER * target.prior.dim)
        candidates = np.asarray(target.prior.sample(key_start, stage))
        evaluate = evaluation(log_prior, total_loss, target) if evaluate is None else evaluate
        try:
            found = adapt(evaluate, candidates, beta=beta, key=key, first=first, rough=True)
        except ConvergenceError:
            self._near = self._found = None
            return None
        self._near, self._found = resample(found, beta, _NEAR), found
        return DrawsAnswer(constrain_rows(target.prior, found.positions), log_weights_of(found, beta))


class _Kept(NamedTuple):
    """Draws of a posterior at rest, and the loss of every row at each of them."""

    prior: UnconstrainedPrior
    x: Float[np.ndarray, "n d_x"]
    positions: Float[np.ndarray, "k d"]
    theta: Float[np.ndarray, "k d"]
    losses: Float[np.ndarray, "k n"]
    logs: Float[np.ndarray, " k"]
    """Log weight plus total loss; minus another total loss, this is the log weight for that loss."""
    effective: float


class LikelihoodAnswer(Follower):
    """The NLE posterior, in which all rows, or all untrimmed rows, have the same weight.

    While one row moves, or others are trimmed, the draws at rest are reweighted: only the loss of that row is computed.
    New draws are made if the effective sample size falls below half of its original value.
    """

    def __init__(self, density: Density, seed: int):
        super().__init__(seed)
        self._density = density
        self._kept: _Kept | None = None

    @double_precision
    def of(self, prior: UnconstrainedPrior, x: Float[np.ndarray, "n d_x"], counts: Any) -> DrawsAnswer | None:
        """The posterior of the data with a count of one or zero for each row."""
        counts = np.asarray(counts, float)
        if self._kept is not None and self._kept.prior is prior:
            found = self._reweighted(self._kept, x, counts)
            if found is not None:
                return found
        return self._drawn(prior, x, counts)

    def _reweighted(
        self, kept: _Kept, x: Float[np.ndarray, "n d_x"], counts: Float[np.ndarray, " n"]
    ) -> DrawsAnswer | None:
        moved = np.flatnonzero((x != kept.x).any(axis=1))
        if len(moved) > _MOVED:
            return None
        losses = kept.losses.copy()
        for i in moved:
            alone = NLELoss(self._density, jnp.asarray(x[i : i + 1]))
            losses[:, i] = losses_at(kept.positions, kept.prior, alone)[1][:, 0]
        self._kept = kept._replace(x=x.copy(), losses=losses)
        answer = DrawsAnswer(kept.theta, kept.logs - counted_losses(losses, counts))
        return answer if answer.effective >= _WORTH * kept.effective else None

    def _drawn(
        self, prior: UnconstrainedPrior, x: Float[np.ndarray, "n d_x"], counts: Float[np.ndarray, " n"]
    ) -> DrawsAnswer | None:
        loss, parts = NLELoss(self._density, jnp.asarray(x)), []

        def evaluate(positions: Float[np.ndarray, "k d"]) -> tuple[np.ndarray, np.ndarray]:
            log_priors, losses = losses_at(positions, prior, loss)
            parts.append(losses)
            return log_priors, counted_losses(losses, counts)

        answer = self.follow(Target(prior, loss, jnp.asarray(1.0)), evaluate=evaluate)
        self._kept = None
        if answer is not None and self._found is not None:
            at = np.searchsorted(np.cumsum(answer.weights), (np.arange(_KEPT) + 0.5) / _KEPT)
            some, often = np.unique(np.minimum(at, len(answer.weights) - 1), return_counts=True)
            losses = np.concatenate(parts)[some]
            self._kept = _Kept(
                prior,
                x.copy(),
                self._found.positions[some],
                answer.theta[some],
                losses,
                np.log(often) + counted_losses(losses, counts),
                float(often.sum() ** 2 / (often**2).sum()),
            )
        return answer
