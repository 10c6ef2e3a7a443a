"""Influence of one replaced observation with location, scatter and weight refitted, which a certificate keeps fixed."""

import numpy as np
from jaxtyping import Float

from nsmbayes.errors import InputError
from nsmbayes.losses.statistics import DataStatistics
from nsmbayes.posteriors import ConjugatePosterior

_MOST = 1000  # maximum number of observations: with more, refitting would take seconds
_TRUSTED = 0.5  # observations with a smaller excess factor are downweighted
_PLACES = (0.0, -2.0, 2.0, -5.0, 5.0, -1e6, 1e6)  # new values, in robust standard deviations from the location


def refitted_worst_case(posterior: ConjugatePosterior) -> float | None:
    """The largest KL(posterior || posterior with one observation replaced), with location, scatter and weight refitted.

    Three observations are replaced (the most central, the farthest, and one with the most common value), by seven
    values each: this is a search, not a proof. Infinite if the changed data have no scatter. None for more than 1,000
    observations, and if some are downweighted as excess: only the method can refit these factors, and losing them would
    look like influence of the replaced observation. The learning rate is unchanged.
    """
    if posterior.n > _MOST or (np.concatenate(posterior.statistics.multiples) < _TRUSTED).any():
        return None
    x, total, worst = posterior.x, posterior.statistics.total, 0.0
    location, scatter = posterior.location_scatter
    for row in _rows(x, posterior.weights):
        for place in _PLACES:
            other = x.copy()
            other[row] = location + place * np.sqrt(np.diagonal(scatter))
            try:
                changed = DataStatistics.of(posterior.statistics.recipe, other).total
            except InputError:
                return float("inf")
            worst = max(worst, float(posterior.kl_to((changed.A - total.A)[None], (changed.B - total.B)[None])[0]))
    return worst


def _rows(x: Float[np.ndarray, "n d_x"], weights: Float[np.ndarray, " n"]) -> set[int]:
    _, first, counts = np.unique(x, axis=0, return_index=True, return_counts=True)
    return {int(weights.argmax()), int(weights.argmin()), int(first[counts.argmax()])}
