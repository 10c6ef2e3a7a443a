"""The figure of failed simulations in parameter space."""

import numpy as np
from matplotlib.figure import Figure

from nsmbayes.calls import RowStatus
from nsmbayes.plotting.style import COLOURS, figure, styled
from nsmbayes.simulators.campaigns import Campaign

_MOST_POINTS = 5_000  # maximum number of points of each kind
_MOST_PARAMETERS = 5


@styled
def plot_failures(campaign: Campaign) -> Figure:
    """Plot every pair of at most five parameters: failed simulations in front of some valid ones.

    The parameters in which failed and valid simulations differ most are shown.
    """
    failures = campaign.failures()
    shown = np.sort(np.argsort(-np.abs(failures.distance), kind="stable")[:_MOST_PARAMETERS])
    some = campaign.rows(0, min(len(campaign), _MOST_POINTS))
    valid = some.theta[some.status == RowStatus.VALID]
    count = campaign.progress().done - len(failures.rows)
    looks = {
        f"valid ({count:,})": (valid, {"color": COLOURS["prior"], "s": 4, "alpha": 0.4}),
        f"failed ({len(failures.rows):,})": (failures.theta[:_MOST_POINTS], {"color": COLOURS["nle"], "s": 8}),
    }
    pairs = [(i, j) for n, i in enumerate(shown) for j in shown[n + 1 :]] or [(int(shown[0]), None)]
    columns = min(len(pairs), 4)
    fig, axes = figure(-(-len(pairs) // columns), columns, (3.2 * columns, 3.0 * -(-len(pairs) // columns)))
    for axis, (i, j) in zip(axes, pairs, strict=False):
        for label, (theta, look) in looks.items():
            axis.scatter(theta[:, i], np.arange(len(theta)) if j is None else theta[:, j], label=label, lw=0, **look)
        names = campaign.parameter_names
        axis.set(xlabel=names[i], ylabel="row" if j is None else names[j])
    for axis in axes[len(pairs) :]:
        axis.remove()
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig
