"""NPE-RS: neural posterior estimation with robust statistics (Huang et al. 2023)."""

from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes import _checks
from nsmbayes.kernels import mmd2
from nsmbayes.methods.base import NotTrainedError, as_settings
from nsmbayes.methods.npe import NPE
from nsmbayes.posteriors.drawn import DrawnPosterior
from nsmbayes.surrogates import PosteriorFlow
from nsmbayes.training import BatchLoss, TrainingSettings


class PenalisedLoss(BatchLoss):
    """mean_i -log q(theta_i | s(x_i)) + strength MMD^2({s(x_i)}, s(x_observed)), for standardised data."""

    observed: Float[Array, "n d_x"]
    strength: Float[Array, ""]

    def __call__(
        self,
        model: PosteriorFlow,
        theta: Float[Array, "batch d_theta"],
        x: Float[Array, "batch n d_x"],
        key: PRNGKeyArray,
    ) -> Float[Array, ""]:
        """The loss of a batch.

        The length-scale is the median heuristic on the batch's own summaries and is differentiated through: the penalty
        then does not change with their scale. A constant one would reward summaries that shrink to a point.
        """
        del key
        s = jax.vmap(model.embedding)(x)
        squared = ((s[:, None] - s[None]) ** 2).sum(-1)[jnp.triu_indices(len(s), 1)]
        lengthscale = jnp.sqrt(jnp.maximum(jnp.median(squared) / 2, 1e-12))
        penalty = mmd2(s, model.embedding(self.observed)[None], lengthscale)
        return -jax.vmap(model.network_log_prob)(theta, s).mean() + self.strength * penalty


class NPERS(NPE):
    """Neural posterior estimation whose summaries are made to overlook what sets the observed data apart.

    The statistics are learnt under a penalty on the maximum mean discrepancy between those of the simulated data sets
    and those of the observed one. So it needs the observations to train: `train` only keeps its settings, and
    `build_posterior` trains anew for every data set.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        strength: weight of the penalty, lambda in the paper.
        options: those of `NPE`.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> theta, x = nsm.simulate_sets(task.prior, task, m=50, n=20, seed=0)
        >>> method = nsm.NPERS(task.prior, strength=1.0).append_simulations(theta, x).train(seed=0)
        >>> method.amortised, method.simulations_used  # build_posterior(x) trains
        ('no', 1000)
    """

    name, label, amortised = "npe-rs", "NPE-RS", "no"

    def __init__(self, prior: Any, *, strength: float = 1.0, **options: Any):
        super().__init__(prior, **options)
        self.strength = _checks.positive(strength, "strength")
        self._how: tuple[int, TrainingSettings, bool] | None = None

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Check the simulations and keep how to train on them: training itself needs the observations."""
        self._all_simulations()
        self._how = _checks.integer(seed, "seed"), as_settings(settings, self.training), progress
        return self

    def build_posterior(self, x: Any, *, seed: int = 0) -> DrawnPosterior:
        """Train with the observations (n, d_x) in sight, and give their posterior."""
        if self._how is None:
            raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
        x, seed = self._observations(x), _checks.integer(seed, "seed")
        observed = jnp.asarray(self._scale_x().standardise(x), jnp.float32)
        self.flow = self._fit(PenalisedLoss(observed, jnp.float32(self.strength)), *self._how)
        return self._posterior(self.flow, x, seed)
