"""q(theta | x_1, ..., x_n): a masked autoregressive flow over parameters, conditioned on the summary of a data set."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from nsmbayes.methods.baselines.networks.deep_set import DeepSet
from nsmbayes.surrogates.maf import affine_autoregressive, flow_log_prob
from nsmbayes.surrogates.scaling import Standardiser

_FLOOR = 0.01


class PosteriorFlow(eqx.Module):
    """log q(t | s(z)) = log N(u; 0, I) + log |du/dt|, with t the standardised parameters and z the standardised data.

    With one parameter an affine flow is a Gaussian whose mean and scale depend on the data.
    """

    embedding: DeepSet
    transform: Any  # a flowjax bijection from t to u, given the summary
    scale_x: Standardiser
    scale_theta: Standardiser

    def network_log_prob(self, t: Float[Array, " d_theta"], summary: Float[Array, " k"]) -> Float[Array, ""]:
        """log q(t | summary) in the network's coordinates."""
        return flow_log_prob(self.transform, t, summary)

    def training_loss(self, t: Float[Array, " d_theta"], z: Float[Array, "n d_x"]) -> Float[Array, ""]:
        """The training loss of one data set."""
        return -self.network_log_prob(t, self.embedding(z))

    def sample(self, key: PRNGKeyArray, x: Float[Array, "n d_x"], count: int) -> Float[Array, "count d_theta"]:
        """Draw theta independently given a data set."""
        summary = self.embedding(self.scale_x(x))
        u = jax.random.normal(key, (count, len(self.scale_theta.scale)), summary.dtype)
        t = jax.vmap(lambda v: self.transform.inverse(v, summary))(u)
        return self.scale_theta.centre + self.scale_theta.scale * t


def init_posterior_flow(
    key: PRNGKeyArray,
    scale_x: Standardiser,
    scale_theta: Standardiser,
    *,
    summaries: int,
    embedding_hidden: int,
    transforms: int,
    hidden: int,
) -> PosteriorFlow:
    """Build an untrained flow, close to the standard normal in standardised parameters."""
    key_embedding, key_flow = jax.random.split(key)
    return PosteriorFlow(
        embedding=DeepSet(key_embedding, len(scale_x.scale), hidden=embedding_hidden, outputs=summaries),
        transform=affine_autoregressive(
            key_flow,
            len(scale_theta.scale),
            summaries,
            transforms=transforms,
            hidden=hidden,
            depth=2,
            floor=_FLOOR,
            activation="tanh",
        ),
        scale_x=scale_x,
        scale_theta=scale_theta,
    )
