"""The growth of every surrogate that is covered by a proposition."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes.robustness.bounds.flow import flow_growth, noisy_flow_growth
from nsmbayes.robustness.bounds.growth import Growth, NotCovered
from nsmbayes.robustness.bounds.mixture import mixture_growth
from nsmbayes.surrogates import Frame, MaskedAutoregressiveFlow, MixtureDensityNetwork, NoisyFlow
from nsmbayes.surrogates.mdn import MixtureEnsemble
from nsmbayes.surrogates.sbi import SbiMixture

Origin = Float[np.ndarray, " d_x"]
NoiseLevels = Float[np.ndarray, " levels"]


def surrogate_growths(surrogate: Any, frame: Frame, origin: Origin, noise_levels: NoiseLevels) -> list[Growth]:
    """The growth of a surrogate at each noise level, around `origin`. Raises `NotCovered` if there is no proof."""
    growths = GROWTHS.get(type(surrogate))
    if growths is None:
        raise _unknown(surrogate)
    return growths(surrogate, frame, origin, noise_levels)


def _of_mixture(
    surrogate: MixtureDensityNetwork, frame: Frame, origin: Origin, noise_levels: NoiseLevels
) -> list[Growth]:
    return [mixture_growth(surrogate, frame, origin, float(h)) for h in noise_levels]


def _of_flow(
    surrogate: MaskedAutoregressiveFlow, frame: Frame, origin: Origin, noise_levels: NoiseLevels
) -> list[Growth]:
    if noise_levels.any():
        raise NotCovered("a flow that was not trained with noise says nothing about noisy data", smooth=True)
    return [flow_growth(surrogate, frame, origin)]


def _of_noisy_flow(surrogate: NoisyFlow, frame: Frame, origin: Origin, noise_levels: NoiseLevels) -> list[Growth]:
    if type(surrogate.base) is not MixtureDensityNetwork:
        raise _unknown(surrogate)
    return [noisy_flow_growth(surrogate, frame, origin, float(h)) for h in noise_levels]


def _of_sbi_mixture(surrogate: SbiMixture, frame: Frame, origin: Origin, noise_levels: NoiseLevels) -> list[Growth]:
    del surrogate, frame, origin, noise_levels
    raise NotCovered(
        "the precisions of sbi's mixture are unbounded in theta: Proposition 2 asks for eigenvalues bounded below, "
        "without which the loss is not bounded below either",
        smooth=True,
    )


GROWTHS: dict[type, Callable[[Any, Frame, Origin, NoiseLevels], list[Growth]]] = {
    MixtureDensityNetwork: _of_mixture,
    MixtureEnsemble: _of_mixture,
    MaskedAutoregressiveFlow: _of_flow,
    NoisyFlow: _of_noisy_flow,
    SbiMixture: _of_sbi_mixture,
}
"""Functions from a surrogate, the frame, the robust location and the noise levels to the growth at each level.

Types are looked up exactly, since a subclass may behave differently.
"""


def _unknown(surrogate: Any) -> NotCovered:
    name = type(surrogate).__name__
    return NotCovered(f"nothing is known about the growth of a {name}, nor whether it is smooth everywhere")
