"""Content of the page as numbers and text: curves on grids, colours, tables; independent of the plotting library."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes._internal.text import shorten
from nsmbayes.explore.explorer import NLE, TRIMMED, View

POINTS = 201
"""Number of points of a curve."""
OWN_COLOUR, PRIOR_COLOUR = "#0072B2", "#777777"
COLOURS = {NLE: "#D55E00", TRIMMED: "#009E73"}
DASHES = {NLE: "dashed", TRIMMED: "dotdash"}
_DARK, _LIGHT = np.array([0.0, 68.0, 130.0]), np.array([235.0, 190.0, 160.0])  # colours of full and of zero weight
_SHOWN = 4.0  # standard deviations of an answer that the grid must cover
_PRIOR_SHOWN = 6.0  # maximum range of the grid in standard deviations of the prior


class Grids:
    """Grids for the curves: narrow ranges that grow if an answer leaves them, and never shrink."""

    def __init__(self, view: View):
        self._low = np.full(len(view.prior.mean), np.inf)
        self._high = -self._low
        self.hold(view)

    def hold(self, view: View) -> list[Float[np.ndarray, " k"]]:
        """A grid for each parameter that covers all answers within the range of the prior."""
        for answer in filter(None, view.answers.values()):
            self._low = np.minimum(self._low, answer.mean - _SHOWN * answer.std)
            self._high = np.maximum(self._high, answer.mean + _SHOWN * answer.std)
        prior = view.prior
        low = np.clip(self._low, prior.mean - _PRIOR_SHOWN * prior.std, None)
        high = np.clip(self._high, None, prior.mean + _PRIOR_SHOWN * prior.std)
        usable = np.isfinite(low) & np.isfinite(high) & (low < high)
        low = np.where(usable, low, prior.mean - _SHOWN * prior.std)
        high = np.where(usable, high, prior.mean + _SHOWN * prior.std)
        return [np.linspace(a, b, POINTS) for a, b in zip(low, high, strict=True)]


def curves(view: View, grids: Sequence[Float[np.ndarray, " k"]]) -> dict[str, Float[np.ndarray, " k"]]:
    """Columns grid-j, prior-j and one for each answer, named by label and number of the parameter; peaks are 1."""
    shown = {"prior": view.prior, **{name: view.answers.get(name) for name in (NLE, TRIMMED)}}
    shown["own"] = next(iter(view.answers.values()))
    columns = {}
    for j, grid in enumerate(grids):
        columns[f"grid-{j}"] = grid
        for name, answer in shown.items():
            heights = np.full(len(grid), np.nan) if answer is None else answer.density(j, grid)
            peak = np.nanmax(heights, initial=0.0)
            columns[f"{name}-{j}"] = heights / peak if peak > 0 else heights
    return columns


def colours(weights: Float[np.ndarray, " n"]) -> list[str]:
    """Colours of rows: dark for full weight, light for zero weight."""
    w = np.clip(np.nan_to_num(weights), 0, 1)[:, None]
    return ["#{:02x}{:02x}{:02x}".format(*map(int, each)) for each in w * _DARK + (1 - w) * _LIGHT]


def table(view: View, names: Sequence[str]) -> str:
    """Means and standard deviations of all answers, as HTML."""
    heads = {
        label: COLOURS.get(label, OWN_COLOUR) + ("" if answer is not None else "; text-decoration: line-through")
        for label, answer in view.answers.items()
    }
    rows = ["<tr><th>parameter</th><th>prior</th>" + "".join(map(_head, heads.items())) + "</tr>"]
    for j, name in enumerate(names):
        cells = [_cell(view.prior, j), *(_cell(answer, j) for answer in view.answers.values())]
        rows.append(f"<tr><th>{html.escape(shorten(name))}</th>{''.join(cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _head(head: tuple[str, str]) -> str:
    return f'<th style="color: {head[1]}">{html.escape(head[0])}</th>'


def _cell(answer: Any, j: int) -> str:
    return "<td>not found</td>" if answer is None else f"<td>{answer.mean[j]:.3g} ± {answer.std[j]:.2g}</td>"


def certificate_text(certificate: Any) -> str:
    """The verdict, followed by all assumptions and constants, as HTML."""
    mark = "robust" if certificate.robust else "not-robust"
    return (
        f'<p class="{mark}">{html.escape(certificate.verdict)}</p><details><summary>Assumptions and constants</summary>'
        f"<pre>{html.escape(certificate.explain())}</pre></details>"
    )


def low_weights(view: View, limit: float) -> str:
    """A sentence about the number of rows with low weights, and about trimmed rows."""
    low = int((view.weights < limit).sum())
    out = int((~view.kept).sum())
    trimmed = f" The trimmed comparison leaves out the {out} farthest." if out else ""
    return f"{low:,} of {len(view.weights):,} rows have a weight below {limit}.{trimmed}"
