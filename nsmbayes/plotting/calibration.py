"""The figure of a calibration: how the learning rate was chosen."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nsmbayes.calibration import CalibrationResult
from nsmbayes.plotting.style import COLOURS, figure, styled


@styled
def plot_calibration(calibration: CalibrationResult) -> Figure:
    """Plot the bootstrap coverage of each tried learning rate, and the chosen one; by step for a sequential search."""
    curve: dict[str, Any] = {"color": COLOURS["nsm-bayes-conj"]}
    chosen: dict[str, Any] = {"ls": "--", "color": COLOURS["truth"], "lw": 1.2}
    chosen["label"] = f"chosen β = {calibration.beta:.3g}"
    betas, coverages = calibration.betas, calibration.coverages
    if calibration.sequential:
        fig, axes = figure(1, 2, (8.6, 3.2))
        steps = np.arange(1, len(betas) + 1)
        axes[0].plot(steps, betas, "o-", ms=4, **curve)
        axes[0].axhline(calibration.beta, **chosen)
        axes[0].set(yscale="log", xlabel="step", ylabel="learning rate β")
        axes[0].legend(loc="best")
        axes[1].plot(steps, coverages, "o-", ms=4, **curve)
        axes[1].set(xlabel="step", ylabel="bootstrap coverage", ylim=(0, 1.03))
    else:
        fig, axes = figure(1, 1, (6.0, 3.2))
        axes[0].step(betas, coverages, where="mid", marker=".", lw=2, **curve)
        axes[0].axvline(calibration.beta, **chosen)
        axes[0].set(xscale="log", xlabel="learning rate β", ylabel="bootstrap coverage", ylim=(0, 1.03))
    axes[-1].axhline(calibration.target, ls=":", color=COLOURS["prior"], label=f"target {calibration.target:.0%}")
    axes[-1].legend(loc="lower left")
    return fig
