"""The common style of all figures: sizes, fonts, and the colours of everything that is not a method."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

P = ParamSpec("P")
F = TypeVar("F", bound=Figure | None)

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

ROLES = {
    "data": "#5F5AA5",
    "outlier": "#D55E00",
    "weight": "#555555",
    "prior": "#888888",
    "truth": "#222222",
    "clean": "#117733",
}
"""The colours of data, weights and references, the same in every figure."""


def styled(plot: Callable[P, F]) -> Callable[P, F]:
    """A decorator that draws a figure in the package's style, without changing matplotlib's settings."""

    @functools.wraps(plot)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> F:
        with rc_context(STYLE):
            return plot(*args, **kwargs)

    return wrapped


def figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure with a flat list of axes."""
    fig = Figure(figsize=size)
    return fig, list(fig.subplots(rows, columns, squeeze=False).flat)
