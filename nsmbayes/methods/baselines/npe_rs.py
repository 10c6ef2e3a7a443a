"""NPE-RS: neural posterior estimation with robust statistics (Huang et al. 2023)."""

from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes.diagnostics.kernels import mmd2
from nsmbayes.methods.baselines.networks import PosteriorFlow
from nsmbayes.methods.baselines.npe import NPE
from nsmbayes.methods.baselines.plan import TrainingPlan
from nsmbayes.methods.surrogate import require_trained
from nsmbayes.posteriors import SampledPosterior
from nsmbayes.training import BatchLoss, TrainingSettings, interrupts_are_final


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
        """Compute the loss of a batch.

        The length-scale is the median heuristic on the summaries of the batch, and gradients pass through it: the
        penalty then does not depend on their scale. A constant length-scale would reward summaries that shrink to a
        point.
        """
        del key
        s = jax.vmap(model.embedding)(x)
        squared = ((s[:, None] - s[None]) ** 2).sum(-1)[jnp.triu_indices(len(s), 1)]
        lengthscale = jnp.sqrt(jnp.maximum(jnp.median(squared) / 2, 1e-12))
        penalty = mmd2(s, model.embedding(self.observed)[None], lengthscale)
        return -jax.vmap(model.network_log_prob)(theta, s).mean() + self.strength * penalty


class NPERS(NPE):
    """Neural posterior estimation whose summaries are trained to ignore how the observed data differ from simulations.

    The summary statistics are learnt with a penalty on the maximum mean discrepancy between those of the simulated data
    sets and those of the observed data set. Training therefore needs the observations: `train` only stores its
    settings, and `build_posterior` trains a new network for every data set.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
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
        self.strength = checks.positive(strength, "strength")
        self._plan: TrainingPlan | None = None

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Check the simulations and store the training settings; training itself needs the observations."""
        self._plan = self._plan_training(seed, settings, progress)
        return self

    def build_posterior(self, x: Any, *, seed: int = 0) -> SampledPosterior:
        """Train with the observations (n, d_x), and return their posterior."""
        plan = require_trained(self._plan)
        x, seed = self._observations(x), checks.integer(seed, "seed")
        observed = jnp.asarray(self._scale_x().standardise(x), jnp.float32)
        with interrupts_are_final():
            self._flow = self._fit(PenalisedLoss(observed, jnp.float32(self.strength)), plan)
        return self._posterior(self._flow, x, seed)
