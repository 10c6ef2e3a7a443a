"""Draws that follow a posterior as it moves, and what NLE says of data that move."""

from typing import Any

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
from nsmbayes.samplers.students import Population, around
from nsmbayes.surrogates import Density

_STAGE, _PER_PARAMETER = 400, 40  # draws of a stage
_NEAR = 200  # draws that the next search begins with


class Follower:
    """Weighted draws of one target after another, each begun where the last one was.

    They are importance draws from Student distributions that are fitted to the target in stages (`samplers.adapt`,
    roughly): good for a picture, and an unbiased answer up to the noise of a few hundred draws.
    """

    def __init__(self, seed: int):
        self._key, self._near = seed_key(seed), None

    @double_precision
    def follow(self, target: Target, near: Float[np.ndarray, "k d"] | None = None) -> DrawsAnswer | None:
        """Draws of a target; None if no draws could follow it. `near` are draws of a similar one, if known."""
        near = self._near if near is None else near
        beta, first = float(target.beta), None if near is None else around(near)
        key_start, key = jax.random.split(self._key)
        stage = max(_STAGE, _PER_PARAMETER * target.prior.dim)
        candidates = np.asarray(target.prior.sample(key_start, stage))
        try:
            evaluate = evaluation(log_prior, total_loss, target)
            found = adapt(evaluate, candidates, beta=beta, key=key, first=first, rough=True)
        except ConvergenceError:
            self._near = None
            return None
        self._near = resample(found, beta, _NEAR)
        return DrawsAnswer(constrain_rows(target.prior, found.positions), _log_weights(found, beta))


def _log_weights(found: Population, beta: float) -> Float[np.ndarray, " k"]:
    logs = found.log_priors - beta * found.losses - found.log_proposals
    return np.where(np.isfinite(logs), logs, -np.inf)


class LikelihoodAnswer(Follower):
    """What NLE says: every row counts alike, or those that are not trimmed."""

    def __init__(self, density: Density, seed: int):
        super().__init__(seed)
        self._density = density

    @double_precision
    def of(self, prior: UnconstrainedPrior, x: Float[np.ndarray, "n d_x"], counts: Any) -> DrawsAnswer | None:
        """The posterior of rows of which each counts one or nothing."""
        loss = NLELoss(self._density, jnp.asarray(x), jnp.asarray(counts, float))
        return self.follow(Target(prior, loss, jnp.asarray(1.0)))
