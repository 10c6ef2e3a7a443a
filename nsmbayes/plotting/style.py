"""One style for all figures: colours by role, readable sizes, no global matplotlib state."""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsmbayes._internal.figures import ROLES, STYLE
from nsmbayes._internal.figures import figure as figure
from nsmbayes._internal.figures import styled as styled
from nsmbayes.errors import InputError


class Look(NamedTuple):
    """Style of a method: colour, line and marker.

    Colour alone does not distinguish so many methods, least of all for colour-blind readers.
    """

    colour: str
    line: Any
    marker: str


# The paper's colours by method. The paper does not have NPE and NSM-Bayes-amortised; their colours are new.
LOOKS = {
    "nsm-bayes": Look("#bd453c", "-", "o"),
    "nsm-bayes-amortised": Look("#117733", (0, (4, 1)), "d"),
    "nsm-bayes-conj": Look("#942192", (0, (6, 1.5)), "s"),
    "nle": Look("#4477AA", (0, (1.5, 1)), "X"),
    "ace": Look("#CCBB44", (0, (6, 1.5, 1.5, 1.5)), "^"),
    "gbi-sr": Look("#FF6B35", (0, (3, 1.5)), "D"),
    "rsnle": Look("#FF69B4", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), "P"),
    "npe": Look("#999933", (0, (3, 3)), "<"),
    "npe-rs": Look("#228833", (0, (3, 1, 1, 1)), "v"),
    "npl-mmd": Look("#66CCEE", (0, (9, 2)), "h"),
}

# Data, weight and reference have the same colours in every figure.
COLOURS = {name: look.colour for name, look in LOOKS.items()} | ROLES

OUTLIERS = "outliers (known here, not to the method)"
"""The label of known outliers in a simulated data set."""


def save(fig: Figure, folder: Path, name: str) -> Path:
    """Write `name`.png and `name`.svg; return the path of the SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        fig.savefig(folder / f"{name}.png")
        fig.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return folder / f"{name}.svg"


def label_colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label: that of the method with this name, otherwise the next of a few other colours."""
    others = cycle(COLOURS[role] for role in ("nsm-bayes-conj", "clean", "nle", "nsm-bayes", "data"))
    return {label: COLOURS[label.lower()] if label.lower() in COLOURS else next(others) for label in labels}


def outlier_mask(is_outlier: Any, n: int) -> Bool[np.ndarray, " n"]:
    """Mask of known outliers among n rows; no row if `is_outlier` is None."""
    if is_outlier is None:
        return np.zeros(n, bool)
    if np.shape(is_outlier) != (n,):
        raise InputError(f"`is_outlier` must have shape ({n},), one entry per row; got {np.shape(is_outlier)}.")
    return np.asarray(is_outlier, bool)


def set_distance_axis(axis: Axes, end: float | None = None) -> None:
    """Format the horizontal axis for robust distances, from 0 to `end`, or by default to the largest point.

    Unlike symlog, an asinh scale has no kink between its linear and logarithmic parts. Its default ticks are too dense
    near zero.
    """
    axis.set(xscale="asinh", xlim=(0, end))
    ticks = _distance_ticks(axis.get_xlim()[1])
    axis.set_xticks(list(ticks), labels=list(ticks.values()))
    axis.set_xticks([], minor=True)


def _distance_ticks(end: float) -> dict[float, str]:
    """Zero and round numbers up to `end`, about evenly spaced on an asinh axis."""
    decades = int(np.log10(max(end, 1)))
    if decades < 3:
        return {t: f"{t:g}" for t in (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if t <= end}
    step = 1 + decades // 8
    return {0: "0"} | {10.0**k: f"$10^{{{k}}}$" for k in range(step, decades + 1, step)}
