"""NPE: neural posterior estimation on data sets. It is not robust; NPE-RS builds on it."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision, in_double
from nsmbayes._internal.random import seed_key
from nsmbayes.methods.baselines.networks import PosteriorFlow, init_posterior_flow
from nsmbayes.methods.baselines.plan import TrainingPlan
from nsmbayes.methods.baselines.sets import SetMethod
from nsmbayes.methods.surrogate import require_trained
from nsmbayes.posteriors import SampledPosterior
from nsmbayes.priors import constrain_rows, unconstrain_rows
from nsmbayes.surrogates import fit_standardiser
from nsmbayes.training import BatchLoss, PointLoss, TrainingSettings, as_settings, fit


def _negative_log_prob(flow: PosteriorFlow, t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]) -> Float[Array, ""]:
    return flow.training_loss(t, z)


@eqx.filter_jit
def _draw(flow: PosteriorFlow, key: PRNGKeyArray, x: Float[Array, "n d_x"], count: int) -> Float[Array, "count d"]:
    return flow.sample(key, x, count)


class NPE(SetMethod):
    """Neural posterior estimation: a flow over theta, conditioned on summaries of the data that are learnt jointly.

    It is trained on data sets of n observations and then gives the posterior of any data set of that size immediately.
    A data set with outliers is unlike all training data, so the posterior is an extrapolation.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        summaries: number of statistics that the deep set learns.
        embedding_hidden: width of the layers of the deep set.
        transforms: autoregressive transforms of the flow.
        hidden: width of their layers.
        draws: number of draws in a posterior.
        options: those of `SetMethod`: scaling, budget, parameter_names.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> theta, x = nsm.simulate_sets(task.prior, task, m=50, n=20, seed=0)
        >>> method = nsm.NPE(task.prior).append_simulations(theta, x)
        >>> method.amortised, method.simulations_used  # then train(seed=0) and build_posterior(x)
        ('fully', 1000)
    """

    name, label, amortised = "npe", "NPE", "fully"
    training = TrainingSettings(
        learning_rate=5e-4, weight_decay=0.0, batch_size=50, validation_fraction=0.1, patience=20, max_epochs=1000
    )

    def __init__(
        self,
        prior: Any,
        *,
        summaries: int = 20,
        embedding_hidden: int = 20,
        transforms: int = 3,
        hidden: int = 20,
        draws: int = 1000,
        **options: Any,
    ):
        super().__init__(prior, **options)
        self.summaries = checks.integer(summaries, "summaries", at_least=1)
        self.embedding_hidden = checks.integer(embedding_hidden, "embedding_hidden", at_least=1)
        self.transforms = checks.integer(transforms, "transforms", at_least=1)
        self.hidden = checks.integer(hidden, "hidden", at_least=self.support.dim)
        self.draws = checks.integer(draws, "draws", at_least=10)
        self._flow: PosteriorFlow | None = None

    @property
    def flow(self) -> PosteriorFlow:
        """The trained flow, with the network for its summaries."""
        return require_trained(self._flow)

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Train summaries and flow jointly by maximum likelihood, on all data sets appended so far."""
        self._flow = self._fit(_negative_log_prob, self._plan_training(seed, settings, progress))
        return self

    def build_posterior(self, x: Any, *, seed: int = 0) -> SampledPosterior:
        """Build the posterior given observations (n, d_x), with n as in the training data sets."""
        flow = self.flow
        return self._posterior(flow, self._observations(x), checks.integer(seed, "seed"))

    def _plan_training(self, seed: int, settings: TrainingSettings | None, progress: bool) -> TrainingPlan:
        self._all_simulations()  # raises an error if there are none
        return TrainingPlan(checks.integer(seed, "seed"), as_settings(settings, self.training), progress)

    def _fit(self, loss: PointLoss | BatchLoss, plan: TrainingPlan) -> PosteriorFlow:
        theta, x = self._all_simulations()
        u = unconstrain_rows(self.support, theta)
        scale_x = self._scale_x()
        scale_theta = fit_standardiser(u, "zscore", "theta")
        key_init, key_fit = jax.random.split(seed_key(plan.seed))
        flow, history = fit(
            init_posterior_flow(
                key_init,
                scale_x,
                scale_theta,
                summaries=self.summaries,
                embedding_hidden=self.embedding_hidden,
                transforms=self.transforms,
                hidden=self.hidden,
            ),
            loss,
            scale_theta.standardise(u),
            scale_x.standardise(x),
            settings=plan.settings,
            key=key_fit,
            progress=plan.progress,
        )
        self._record(history)
        return in_double(flow)

    @double_precision
    def _posterior(self, flow: PosteriorFlow, x: Float[np.ndarray, "n d_x"], seed: int) -> SampledPosterior:
        u = np.asarray(_draw(flow, seed_key(seed), jnp.asarray(x), self.draws))
        return SampledPosterior(self._provenance(), self.support, constrain_rows(self.support, u[None]), x)
