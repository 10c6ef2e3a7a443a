"""The figures and controls of the page, as Bokeh models that are independent of inference."""

from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from bokeh.layouts import column, gridplot, row
from bokeh.models import (
    Button,
    ColumnDataSource,
    CustomJS,
    Range1d,
    Select,
    Slider,
    Spinner,
)
from bokeh.plotting import figure

from nsmbayes._internal.text import shorten
from nsmbayes.explore.drawing import COLOURS, DASHES, OWN_COLOUR, PRIOR_COLOUR

_WIDE, _PLOT = 560, 330
_SMALL = (270, 170)
TEMPLATE = resources.files("nsmbayes.explore").joinpath("page.html").read_text(encoding="utf-8")
"""HTML template around the figures and controls. Text is not in Bokeh widgets, because each change of a widget triggers
a new layout of the whole page, which takes longer than everything else."""


def script() -> str:
    """The JavaScript of the page."""
    return resources.files("nsmbayes.explore").joinpath("page.js").read_text(encoding="utf-8")


class Sources(NamedTuple):
    """Tables shared by browser and server."""

    points: ColumnDataSource
    """The drawn rows."""
    moved: ColumnDataSource
    """From the browser: the dragged row and its new position."""
    answered: ColumnDataSource
    """To the browser: the present weights of the rows, and the serial number of the request."""
    curves: ColumnDataSource
    weight: ColumnDataSource
    """The weight function along the axis, for one column."""
    words: ColumnDataSource
    """Texts, by the names of their places on the page."""


class Controls(NamedTuple):
    """All controls of the page."""

    row: Spinner
    across_value: Spinner
    up_value: Spinner | None
    across: Select | None
    up: Select | None
    parameter: Select
    shift: Slider
    width: Slider
    zeta: Slider
    beta: Slider
    trimmed: Slider
    reset: Button


def sources() -> Sources:
    """Create empty tables."""
    return Sources(*(ColumnDataSource(name=name) for name in Sources._fields))


def written(document: Any, tables: Sources) -> None:
    """Show text on the page when the page is ready, and whenever the text changes."""
    write = CustomJS(args={"words": tables.words}, code="window.nsmExplore.write(words)")
    tables.words.js_on_change("data", write)
    document.js_on_event("document_ready", write)


def data_figure(tables: Sources, *, flat: bool) -> Any:
    """Figure of the rows, which can be dragged; for one column (`flat`), their height is their weight."""
    plot = figure(
        name="data",
        width=_WIDE,
        height=_PLOT,
        tools="xwheel_zoom,reset" if flat else "wheel_zoom,reset",
        active_drag=None,
        active_scroll=None,
        x_range=Range1d(start=0, end=1),
        y_range=Range1d(start=-0.06, end=1.1) if flat else Range1d(start=0, end=1),
        toolbar_location="right",
    )
    plot.toolbar.logo = None
    if flat:
        plot.line("x", "weight", source=tables.weight, color=PRIOR_COLOUR, line_width=1)
        plot.yaxis.axis_label = "weight"
    dots: Any = {"size": 11, "fill_color": "colour", "line_color": "edge", "line_width": 2, "fill_alpha": 0.75}
    plot.scatter("x", "y", source=tables.points, **dots)
    # a table is part of the page, and synchronised with it, only if something on the page refers to it
    shared = {"figure": plot, "flat": flat, **tables._asdict()}
    for event, call in (
        ("panstart", "start(figure, points, cb_obj)"),
        ("pan", "move(points, moved, flat, cb_obj)"),
        ("panend", "end(points, moved, flat, cb_obj)"),
    ):
        plot.js_on_event(event, CustomJS(args=shared, code=f"window.nsmExplore.{call}"))
    answer = CustomJS(args=shared, code="window.nsmExplore.answer(points, answered, flat)")
    tables.answered.js_on_change("data", answer)
    return plot


def marginal_figures(tables: Sources, names: tuple[str, ...]) -> list[Any]:
    """One small figure of marginal densities per parameter."""
    found = []
    for j, name in enumerate(names):
        ranges: Any = {"x_range": Range1d(start=0, end=1), "y_range": Range1d(start=0, end=1.08)}
        plot = figure(
            name=f"marginal-{j}", width=_SMALL[0], height=_SMALL[1], tools="", toolbar_location=None, **ranges
        )
        plot.xaxis.axis_label = shorten(name)
        plot.yaxis.visible = False
        plot.grid.grid_line_color = None
        lines = {"prior": (PRIOR_COLOUR, "dotted", 1.5)}
        lines |= {label: (colour, DASHES[label], 2.0) for label, colour in COLOURS.items()}
        lines["own"] = (OWN_COLOUR, "solid", 2.5)
        for label, (colour, dash, width) in lines.items():
            look: Any = {"color": colour, "line_dash": dash, "line_width": width}
            plot.line(f"grid-{j}", f"{label}-{j}", source=tables.curves, **look)
        found.append(plot)
    return found


def controls(names: tuple[str, ...], columns: tuple[str, ...], n: int) -> Controls:
    """Create all controls; all of them can be used with the keyboard."""
    flat, half = len(columns) == 1, _WIDE // 2 - 10
    options: Any = [(str(i), shorten(name)) for i, name in enumerate(columns)]
    parameters: Any = [(str(j), shorten(name)) for j, name in enumerate(names)]
    slider: Any = {"width": half}

    def number(name: str, title: str) -> Spinner:
        return Spinner(name=name, title=title, width=half // 2 if not flat else half, value=0.0)

    return Controls(
        row=Spinner(name="row", title="row", low=0, high=n - 1, step=1, value=0, width=90),
        across_value=number("across_value", shorten(columns[0])),
        up_value=None if flat else number("up_value", shorten(columns[1])),
        across=None if flat else Select(name="across", title="across", options=options, value="0", width=half),
        up=None if flat else Select(name="up", title="up", options=options, value="1", width=half),
        parameter=Select(
            name="parameter",
            title="prior of",
            options=parameters,
            value="0",
            width=half,
        ),
        shift=Slider(
            name="shift", title="prior mean, moved by (prior sd)", start=-3, end=3, step=0.1, value=0, **slider
        ),
        width=Slider(
            name="width", title="prior sd, times 2 to the power of", start=-3, end=3, step=0.25, value=0, **slider
        ),
        zeta=Slider(
            name="zeta", title="zeta: how slowly weights decay", start=0.2, end=4, step=0.05, value=1, **slider
        ),
        beta=Slider(name="beta", title="beta", start=-1, end=1, step=0.05, value=0, show_value=False, **slider),
        trimmed=Slider(
            name="trimmed", title="NLE, trimmed: fraction left out", start=0, end=0.4, step=0.01, value=0, **slider
        ),
        reset=Button(name="reset", label="Start again", width=half),
    )


def laid_out(plot: Any, marginals: list[Any], use: Controls) -> tuple[Any, Any]:
    """Layout of the left and the right column of the page."""
    chosen = [each for each in (use.across, use.up) if each is not None]
    places = [each for each in (use.row, use.across_value, use.up_value) if each is not None]
    left = column(
        plot,
        *([row(*chosen)] if chosen else []),
        row(*places),
        row(use.parameter, use.reset),
        row(use.shift, use.width),
        row(use.zeta, use.beta),
        row(use.trimmed),
        name="left",
    )
    grid = gridplot(marginals, ncols=2, toolbar_location=None)  # pyright: ignore[reportArgumentType]
    return left, column(grid, name="right")


def set_range(axis: Any, low: float, high: float) -> None:
    """Set the range of an axis if it differs, since every change redraws the axis."""
    if (axis.start, axis.end) != (low, high):
        axis.update(start=low, end=high)


def span(values: np.ndarray) -> tuple[float, float]:
    """Range of an axis, with room to drag a row far away."""
    low, high = float(values.min()), float(values.max())
    wide = (high - low) or max(abs(high), 1.0)
    return low - 0.25 * wide, high + 0.5 * wide
