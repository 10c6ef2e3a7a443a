"""Training of a density by maximum likelihood; around a linear trend if x is nearly linear in theta."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from nsmbayes._internal.precision import double_precision
from nsmbayes.surrogates import Density, MixtureDensityNetwork, fit_trend, trend_alone
from nsmbayes.training.loop import Augment, Stopped, TrainingHistory, fit, held_out_rows
from nsmbayes.training.settings import TrainingSettings
from nsmbayes.training.sharing import SharingNetwork
from nsmbayes.training.stream import Stream

_NEARLY_LINEAR = 1.0  # nats by which the trend alone may be worse than a network for trying a network around the trend
_SIMPLER = 2.0  # standard errors by which a network around the trend must be better than the trend alone
_PENALTY = 0.1  # weight decay of a network around a trend: zero weights give the trend alone


def fit_density(
    initial: Density,
    t: Float[ndarray, "m d_theta"],
    z: Float[ndarray, "m d_x"],
    *,
    settings: TrainingSettings,
    key: PRNGKeyArray,
    augment: Augment | None = None,
    stream: Stream | None = None,
    devices: Sequence[Any] | None = None,
    progress: bool = True,
) -> tuple[Density, TrainingHistory]:
    """Train `initial` on standardised simulations; among several candidates, return the best on held-out simulations.

    A mixture density network with factors of the precision is trained as the sum of a part shared by all components and
    a part for each component (`training.sharing`). With many columns, such a network learns a linear mean badly. So it
    is trained a second time around the linear trend of the simulations, if the trend alone is not much worse than the
    first network. The trend alone, with Gaussian noise, is a third candidate if all candidates are compared on the same
    simulations; it is preferred to a network around it that is not clearly better.

    The history is that of the network that is kept, and ends with the trend if the trend is better than its network. It
    is marked as interrupted if either training was interrupted. With `stream`, training uses the simulations of the
    stream, and `t` and `z` are some of them.
    """

    def train(network: Density, settings: TrainingSettings) -> tuple[Density, TrainingHistory]:
        options: dict[str, Any] = {"augment": augment, "stream": stream, "devices": devices, "progress": progress}
        options |= {"settings": settings, "key": key}
        if not _is_of_precisions(network):
            return fit(network, _loss, t, z, **options)
        trained, history = fit(SharingNetwork.of(network), _sharing_loss, t, z, **options)
        return trained.whole(), history

    density, history = train(initial, settings)
    if not _is_of_precisions(initial):
        return density, history
    held_out = np.zeros(len(t), bool)
    held_out[held_out_rows(key, len(t), settings)] = True
    trend = fit_trend(t[~held_out], z[~held_out])
    fitted, each = (trend.losses(t[rows], z[rows]) for rows in (~held_out, held_out))
    loss = float(each.mean())
    if history.stopped == Stopped.INTERRUPTED or loss > history.best_validation_loss + _NEARLY_LINEAR:
        return density, history
    other, others = train(replace(initial, trend=trend), replace(settings, weight_decay=_PENALTY))
    interrupted = others.stopped == Stopped.INTERRUPTED
    if stream is None and initial.floor < 1 < initial.ceiling:
        better = each - np.asarray(_losses(other, t[held_out], z[held_out]))
        if better.mean() < _SIMPLER * better.std() / np.sqrt(len(better)):
            other, others = trend_alone(initial, trend), _ending(others, float(fitted.mean()), loss)
    better_around = others.best_validation_loss < history.best_validation_loss
    kept, its = (other, others) if better_around else (density, history)
    return kept, replace(its, stopped=Stopped.INTERRUPTED) if interrupted else its


def _ending(history: TrainingHistory, train_loss: float, validation_loss: float) -> TrainingHistory:
    """The history with one more entry, which is marked as the best."""
    return replace(
        history,
        train_loss=np.append(history.train_loss, train_loss),
        validation_loss=np.append(history.validation_loss, validation_loss),
        best_epoch=len(history.validation_loss),
    )


@double_precision
@eqx.filter_jit
def _losses(density: Density, t: Float[ndarray, "m d_theta"], z: Float[ndarray, "m d_x"]) -> Float[Array, " m"]:
    return jax.lax.map(lambda row: -density.network_log_prob(*row), (jnp.asarray(t), jnp.asarray(z)), batch_size=512)


def _is_of_precisions(density: Density) -> TypeGuard[MixtureDensityNetwork]:
    return isinstance(density, MixtureDensityNetwork) and density.factor == "precision"


def _loss(density: Density, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
    return density.training_loss(t, z)


def _sharing_loss(model: SharingNetwork, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
    return model.whole().training_loss(t, z)
