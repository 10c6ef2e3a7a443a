"""What a certificate keeps fixed, fitted again: how far one replaced observation was seen to move a posterior."""

import numpy as np
from jaxtyping import Float

from nsmbayes.errors import InputError
from nsmbayes.losses.statistics import DataStatistics
from nsmbayes.posteriors import ConjugatePosterior

_MOST = 1000  # observations: of more, fitting all of them again would take seconds
_TRUSTED = 0.5  # factor by number above which an observation is not distrusted
_PLACES = (0.0, -2.0, 2.0, -5.0, 5.0, -1e6, 1e6)  # in robust standard deviations from the location


def refitted_worst_case(posterior: ConjugatePosterior) -> float | None:
    """The largest KL(posterior || posterior with one observation replaced), with location, scatter and weight refitted.

    Three observations are replaced, the most central, the farthest and one of those with the most common value, by
    seven values each: a search, not a proof. Infinite if the data have no scatter any more. None for more than 1,000
    observations, and where some are distrusted for their number: their factors, which only the method can fit again,
    would be lost, and that would be taken for the influence of the one replaced. The learning rate stays as it is.
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
