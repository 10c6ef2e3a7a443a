"""One look for every figure: colours by role, readable sizes, no global matplotlib state."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

P = ParamSpec("P")

# The paper's colours by method; data, weight and reference keep theirs in every figure.
COLOURS = {
    "nsm-bayes-conj": "#942192",
    "nsm-bayes": "#bd453c",
    "nle": "#4477AA",
    "data": "#5F5AA5",
    "outlier": "#D55E00",
    "weight": "#555555",
    "prior": "#888888",
    "truth": "#222222",
    "clean": "#117733",
}

STYLE: Any = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "svg.hashsalt": "nsmbayes",
}


def styled(plot: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw a figure with the package's style, leaving matplotlib's own settings alone."""

    @functools.wraps(plot)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(STYLE):
            return plot(*args, **kwargs)

    return wrapped


def figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure with a flat list of axes."""
    fig = Figure(figsize=size)
    return fig, list(fig.subplots(rows, columns, squeeze=False).flat)


def save(fig: Figure, folder: Path, name: str) -> Path:
    """Write `name`.png and `name`.svg; return the path of the SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        fig.savefig(folder / f"{name}.png")
        fig.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return folder / f"{name}.svg"
