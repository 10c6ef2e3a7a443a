"""NPE: neural posterior estimation on data sets, not robust; the ground that NPE-RS builds on."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes import _checks
from nsmbayes._precision import double_precision, in_double
from nsmbayes._seeds import seed_key
from nsmbayes.methods.base import NotTrainedError, as_settings
from nsmbayes.methods.sets import SetMethod
from nsmbayes.posteriors.drawn import DrawnPosterior, constrain
from nsmbayes.priors import unconstrain_rows
from nsmbayes.surrogates import PosteriorFlow, fit_standardiser, init_posterior_flow
from nsmbayes.training import BatchLoss, PointLoss, TrainingSettings, fit


def _negative_log_prob(flow: PosteriorFlow, t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]) -> Float[Array, ""]:
    return flow.training_loss(t, z)


@eqx.filter_jit
def _draw(flow: PosteriorFlow, key: PRNGKeyArray, x: Float[Array, "n d_x"], count: int) -> Float[Array, "count d"]:
    return flow.sample(key, x, count)


class NPE(SetMethod):
    """Neural posterior estimation: a flow over theta, conditioned on summaries of the data that are learnt with it.

    It is trained on data sets of n observations and then gives the posterior of any data set of that size at once. A
    data set with outliers is unlike all that it was trained on, and what it then says is extrapolation.

    Args:
        prior: a `GaussianPrior` or any continuous numpyro distribution over a vector.
        summaries: number of statistics that the deep set learns.
        embedding_hidden: width of the layers of the deep set.
        transforms: autoregressive transforms of the flow.
        hidden: width of their layers.
        scaling: how the network sees x: "zscore" as in the paper, "robust", "robust-asinh" or "none".
        draws: draws a posterior holds.
        budget: the most simulations it may be given.
        parameter_names: names for tables and plots.

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
        scaling: str = "zscore",
        draws: int = 1000,
        budget: int | None = None,
        parameter_names: tuple[str, ...] | None = None,
    ):
        super().__init__(prior, scaling=scaling, budget=budget, parameter_names=parameter_names)
        self.summaries = _checks.integer(summaries, "summaries", at_least=1)
        self.embedding_hidden = _checks.integer(embedding_hidden, "embedding_hidden", at_least=1)
        self.transforms = _checks.integer(transforms, "transforms", at_least=1)
        self.hidden = _checks.integer(hidden, "hidden", at_least=self.support.dim)
        self.draws = _checks.integer(draws, "draws", at_least=10)
        self.flow: PosteriorFlow | None = None

    def train(self, seed: int = 0, *, settings: TrainingSettings | None = None, progress: bool = True) -> Self:
        """Train summaries and flow together by maximum likelihood, on all data sets appended so far."""
        self.flow = self._fit(_negative_log_prob, seed, as_settings(settings, self.training), progress)
        return self

    def _fit(self, loss: PointLoss | BatchLoss, seed: int, settings: TrainingSettings, progress: bool) -> PosteriorFlow:
        theta, x = self._all_simulations()
        u = unconstrain_rows(self.support, theta)
        scale_x = self._scale_x()
        scale_theta = fit_standardiser(u, "zscore", "theta")
        key_init, key_fit = jax.random.split(seed_key(_checks.integer(seed, "seed")))
        flow, self.history = fit(
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
            settings=settings,
            key=key_fit,
            progress=progress,
        )
        return in_double(flow)

    def build_posterior(self, x: Any, *, seed: int = 0) -> DrawnPosterior:
        """The posterior given as many observations (n, d_x) as the data sets of the training had."""
        if self.flow is None:
            raise NotTrainedError("This method is not trained yet: call append_simulations(theta, x), then train().")
        return self._posterior(self.flow, self._observations(x), _checks.integer(seed, "seed"))

    @double_precision
    def _posterior(self, flow: PosteriorFlow, x: Float[np.ndarray, "n d_x"], seed: int) -> DrawnPosterior:
        u = np.asarray(_draw(flow, seed_key(seed), jnp.asarray(x), self.draws))
        return DrawnPosterior(
            (self.name, self.label),
            self.support,
            constrain(self.support, u[None]),
            x,
            parameter_names=self.parameter_names,
        )
