"""Influence of observations on a posterior, by reweighting its draws."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import logsumexp

RELIABLE = 0.1  # minimum fraction of effective draws for a reliable estimate by reweighting


class Influence(NamedTuple):
    """KL divergences, and whether each is reliable: always in closed form; from draws with enough effective draws."""

    kl: Float[np.ndarray, " k"]
    reliable: Bool[np.ndarray, " k"]


def influence_by_reweighting(a: Float[np.ndarray, "draws k"]) -> Influence:
    """Estimate KL(p || p e^a / E e^a) from draws of p, for many a."""
    kl, effective = tilted_kl(a)
    return Influence(kl, effective >= RELIABLE * len(a))


def tilted_kl(a: Float[np.ndarray, "draws k"]) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """KL(p || p e^a / E e^a) = log E e^a - E a from draws of p, for many a, and the effective number of draws.

    With few effective draws, log E e^a is underestimated, and so is the KL divergence.
    """
    log_total, log_square = (np.asarray(logsumexp(k * a, axis=0)) for k in (1, 2))
    kl = np.maximum(log_total - np.log(len(a)) - a.mean(axis=0), 0)
    return kl, np.exp(2 * log_total - log_square)
