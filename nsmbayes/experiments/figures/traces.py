"""The figure of calibration traces."""

from matplotlib.figure import Figure

from nsmbayes.experiments.figures.looks import logarithmic
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import display_name, group_by
from nsmbayes.plotting.style import COLOURS, LOOKS, figure, styled

_TARGET = 0.95


@styled
def traces(result: ExperimentResult) -> Figure | None:
    """Learning rate and coverage in every repeat: in the order they were tried, or against each other."""
    found = group_by((trace for repeat in result.repeats for trace in repeat.traces), lambda trace: trace.method)
    if not found:
        return None
    stochastic = result.preset == "paper"
    fig, axes = figure(1 + stochastic, len(found), (3.6 * max(len(found), 2), 2.5 * (1 + stochastic) + 0.4))
    for column, (label, all_traces) in enumerate(found.items()):
        look = {"color": LOOKS[result.methods[label].method].colour, "alpha": 0.6, "lw": 1.2}
        top, bottom = axes[column], axes[-len(found) + column]
        for trace in all_traces:
            betas, coverages = trace.betas, trace.coverages
            if stochastic:
                steps = range(1, len(betas) + 1)
                top.plot(steps, betas, **look)
                bottom.plot(steps, coverages, **look)
            else:
                bottom.plot(betas, coverages, marker="o", ms=3 if len(betas) > 1 else 6, **look)
        top.set(title=display_name(label))
        bottom.axhline(_TARGET, ls=":", color=COLOURS["prior"])
        bottom.set(xlabel="step" if stochastic else "learning rate β", ylim=(-0.03, 1.05))
        logarithmic(top, x=not stochastic, y=stochastic)
    if stochastic:
        axes[0].set(ylabel="learning rate β")
    axes[-len(found)].set(ylabel="bootstrap coverage")
    return fig
