"""Training of a density by maximum likelihood; where x is nearly linear in theta, around its linear trend."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from nsmbayes.surrogates import Density, MixtureDensityNetwork, fit_trend
from nsmbayes.training.loop import Augment, Stopped, TrainingHistory, fit
from nsmbayes.training.settings import TrainingSettings
from nsmbayes.training.sharing import SharingNetwork
from nsmbayes.training.stream import Stream

_NEARLY_LINEAR = 1.0  # nats by which the trend alone may be worse than a network, for both to be tried together
_PENALTY = 0.1  # on what is trained around a trend: zero is the trend alone, and what it explains should stay so


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
    """Train `initial` on standardised simulations; of two networks the one that is better on held-out ones.

    A mixture density network with factors of the precision is trained as what its components share and what each has
    of its own (`training.sharing`). With many columns it learns a linear mean badly: it is trained a second time around
    the linear trend of the simulations, if that trend alone is not much worse than the first network. The history is
    that of the network that is kept; it says so if either training was interrupted. With `stream`, its simulations are
    trained on, and `t` and `z` are some of them.
    """
    around = _around_trend(initial, t, z)

    def train(network: Density, settings: TrainingSettings) -> tuple[Density, TrainingHistory]:
        options: dict[str, Any] = {"augment": augment, "stream": stream, "devices": devices, "progress": progress}
        options |= {"settings": settings, "key": key}
        if not _is_of_precisions(network):
            return fit(network, _loss, t, z, **options)
        trained, history = fit(SharingNetwork.of(network), _sharing_loss, t, z, **options)
        return trained.whole(), history

    density, history = train(initial, settings)
    if around is None or history.stopped == Stopped.INTERRUPTED:
        return density, history
    network, loss_of_trend = around
    if loss_of_trend > history.best_validation_loss + _NEARLY_LINEAR:
        return density, history
    other, others = train(network, replace(settings, weight_decay=_PENALTY))
    kept, its = (density, history)
    if others.best_validation_loss < history.best_validation_loss:
        kept, its = other, others
    return kept, replace(its, stopped=Stopped.INTERRUPTED) if others.stopped == Stopped.INTERRUPTED else its


def _around_trend(
    initial: Density, t: Float[ndarray, "m d_theta"], z: Float[ndarray, "m d_x"]
) -> tuple[MixtureDensityNetwork, float] | None:
    if not _is_of_precisions(initial):
        return None
    trend, loss = fit_trend(t, z)
    return replace(initial, trend=trend), loss


def _is_of_precisions(density: Density) -> TypeGuard[MixtureDensityNetwork]:
    return isinstance(density, MixtureDensityNetwork) and density.factor == "precision"


def _loss(density: Density, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
    return density.training_loss(t, z)


def _sharing_loss(model: SharingNetwork, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
    return model.whole().training_loss(t, z)
