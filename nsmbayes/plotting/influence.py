"""The figure of the influence of one observation on posteriors."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nsmbayes.errors import InputError
from nsmbayes.plotting.style import figure, label_colours, set_distance_axis, styled
from nsmbayes.posteriors import ConjugatePosterior, GeneralisedPosterior, Posterior
from nsmbayes.robustness import line, pif_delta


@styled
def plot_influence(posteriors: dict[str, Posterior], *, direction: Any = None, reach: float = 1e6) -> Figure:
    """Plot the influence of one observation on each posterior, by label, as it moves away from the bulk of the data.

    Distances are in robust standard deviations of the first posterior's data. Influence is half the integral of
    |PIF_Delta| over theta: the rate of change of the posterior, in total variation, with the fraction of the data at
    the observation. It needs the loss at other observations: that of NLE, NSM-Bayes or NSM-Bayes-conj.
    """
    for label, posterior in posteriors.items():
        if not isinstance(posterior, ConjugatePosterior | GeneralisedPosterior):
            raise InputError(
                f"`posteriors` must be those of NLE, NSM-Bayes or NSM-Bayes-conj, whose loss can be evaluated at other "
                f"observations; {label!r} is a {type(posterior).__name__} of {posterior.label}. Leave it out."
            )
    first = next(iter(posteriors.values()))
    fig, (axis,) = figure(1, 1, (6.4, 3.8))
    distances = np.concatenate([np.linspace(0, 10, 41)[:-1], np.geomspace(10, reach, 61)])
    points, colours = line(first, distances, direction), label_colours(posteriors)
    for label, posterior in posteriors.items():
        axis.plot(distances, pif_delta(posterior, points).total_variation, lw=2, color=colours[label], label=label)
    set_distance_axis(axis, reach)
    axis.set(xlabel="distance of one observation from the bulk, in robust standard deviations", ylabel="influence")
    axis.set(yscale="log")
    axis.legend()
    return fig
