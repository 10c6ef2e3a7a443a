"""One look for every figure: colours by role, readable sizes, no global matplotlib state."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

P = ParamSpec("P")
F = TypeVar("F", bound=Figure | None)


class Look(NamedTuple):
    """How a method is drawn. Colour alone would not tell so many apart, least of all to the colour-blind."""

    colour: str
    line: Any
    marker: str


# The paper's colours by method; NPE, which the paper does not run, has one of its own.
LOOKS = {
    "nsm-bayes": Look("#bd453c", "-", "o"),
    "nsm-bayes-conj": Look("#942192", (0, (6, 1.5)), "s"),
    "nle": Look("#4477AA", (0, (1.5, 1)), "X"),
    "ace": Look("#CCBB44", (0, (6, 1.5, 1.5, 1.5)), "^"),
    "gbi-sr": Look("#FF6B35", (0, (3, 1.5)), "D"),
    "rsnle": Look("#FF69B4", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), "P"),
    "npe": Look("#999933", (0, (3, 3)), "<"),
    "npe-rs": Look("#228833", (0, (3, 1, 1, 1)), "v"),
    "npl-mmd": Look("#66CCEE", (0, (9, 2)), "h"),
}

# Data, weight and reference keep their colours in every figure.
COLOURS = {name: look.colour for name, look in LOOKS.items()} | {
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


def styled(plot: Callable[P, F]) -> Callable[P, F]:
    """Draw a figure with the package's style, leaving matplotlib's own settings alone."""

    @functools.wraps(plot)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> F:
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
