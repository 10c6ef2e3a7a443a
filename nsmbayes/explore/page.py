"""The page: it shows an explorer, and reacts to changes by the user."""

import html
import time
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes._internal.text import shorten
from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.explore import drawing, widgets
from nsmbayes.explore.choices import Choices
from nsmbayes.explore.explorer import NLE, TRIMMED, Explorer
from nsmbayes.posteriors import LOW_WEIGHT

_REST_MS = 300  # delay after the last change, before everything is refitted
_BETAS = 2.0  # range of the slider on both sides of the initial learning rate, in powers of ten
_LOWEST_ZETA = 0.2
LIVE = "Moving: location, scatter and factors by number are those of the last fit."
FITTING = "Fitting everything again ..."
RESTED = "At rest: everything is fitted to the data as shown."


class Page:
    """One page in one browser, with its own data and choices."""

    def __init__(self, document: Any, explorer: Explorer[Any], executor: Executor, *, title: str):
        self._document, self._start, self._explorer, self._executor = document, explorer, explorer, executor
        self._x, self._choices = explorer.x.copy(), explorer.choices
        self._columns = (0,) if self._x.shape[1] == 1 else (0, 1)
        self._changes, self._resting, self._own_doing = 0, None, False
        self._dirty = False
        posterior = explorer.posterior
        names = posterior.x_names or tuple(f"column {i}" for i in range(self._x.shape[1]))
        self._names = names
        self._sources, self._words = widgets.sources(), {}
        self._use = widgets.controls(posterior.parameter_names, names, len(self._x))
        self._plot = widgets.data_figure(self._sources, flat=self._flat)
        view = explorer.view(self._x, self._choices)
        self._grids = drawing.Grids(view)
        self._marginals = widgets.marginal_figures(self._sources, posterior.parameter_names)
        lead = f"<h1>{html.escape(shorten(title, 200))}</h1><p>{_LEAD}</p>"
        self._write(title=lead, legend=_legend(explorer))
        self._settle_controls()
        self._listen()
        self._show_rows()
        self._show(RESTED)
        self._show_certificate()
        for root in widgets.laid_out(self._plot, self._marginals, self._use):
            document.add_root(root)
        widgets.written(document, self._sources)
        document.template = widgets.TEMPLATE
        document.template_variables["script"] = widgets.script()
        document.title = shorten(title, 200)

    @property
    def _flat(self) -> bool:
        return len(self._columns) == 1

    # --- actions of the user ---

    def _listen(self) -> None:
        use = self._use
        self._sources.moved.on_change("data", self._on_moved)
        use.across_value.on_change("value", self._on_across)
        if use.up_value is not None:
            use.up_value.on_change("value", self._on_up)
        use.row.on_change("value", self._on_row)
        for chosen in filter(None, (use.across, use.up)):
            chosen.on_change("value", self._on_columns)
        use.parameter.on_change("value", self._on_parameter)
        for slider in (use.shift, use.width, use.zeta, use.beta, use.trimmed):
            slider.on_change("value", self._on_slider)
        use.reset.on_click(self._on_reset)

    def _on_moved(self, attribute: str, old: Any, new: Any) -> None:
        """A row was dragged in the browser, which waits for the answer with this serial number."""
        del attribute, old
        row = int(new["row"][0])
        place = [float(new["x"][0])] if self._flat else [float(new["x"][0]), float(new["y"][0])]
        if 0 <= row < len(self._x) and np.isfinite(place).all():
            self._x[row, list(self._columns)] = place
        self._show(LIVE, serial=int(new["serial"][0]))
        if new["done"][0]:
            self._set(self._use.row, row)
            self._settle_numbers()
            self._rest()

    def _on_row(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old, new
        self._settle_numbers()

    def _on_parameter(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old, new
        self._settle_controls()

    def _on_across(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old
        self._put(self._columns[0], new)

    def _on_up(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old
        self._put(self._columns[-1], new)

    def _put(self, column: int, value: Any) -> None:
        """A value was typed, or changed by the arrow keys."""
        if self._own_doing or not isinstance(value, int | float) or not np.isfinite(value):
            return
        self._x[self._row, column] = value
        self._show_rows()
        self._show(LIVE)
        self._rest()

    def _on_columns(self, attribute: str, old: Any, new: Any) -> None:
        """Another pair of columns was selected."""
        del attribute, old, new
        assert self._use.across is not None
        assert self._use.up is not None
        self._columns = (int(self._use.across.value), int(self._use.up.value))
        self._settle_numbers()
        self._show_rows()

    def _on_slider(self, attribute: str, old: Any, new: Any) -> None:
        """A slider was moved; of many moves in a row, only the last one is processed."""
        del attribute, old, new
        if self._own_doing:
            return
        use, j = self._use, int(self._use.parameter.value)
        shift, width = list(self._choices.shift), list(self._choices.width)
        shift[j], width[j] = float(use.shift.value), float(2.0**use.width.value)
        self._choices = Choices(
            beta=float(10.0**use.beta.value),
            zeta=None if self._choices.zeta is None else float(use.zeta.value),
            shift=tuple(shift),
            width=tuple(width),
            trimmed=float(use.trimmed.value),
        )
        if not self._dirty:
            self._dirty = True
            self._document.add_next_tick_callback(self._answer_sliders)

    def _answer_sliders(self) -> None:
        self._dirty = False
        self._show(LIVE)
        self._rest()

    def _on_reset(self) -> None:
        """Restore the initial data and choices."""
        self._changes += 1
        self._explorer, self._x, self._choices = self._start, self._start.x.copy(), self._start.choices
        self._grids = drawing.Grids(self._start.view(self._x, self._choices))
        self._settle_controls()
        self._settle_numbers()
        self._show_rows()
        self._show(RESTED)
        self._show_certificate()

    # --- refitting at rest ---

    def _rest(self) -> None:
        """Schedule a refit, which is cancelled if something moves before."""
        self._changes += 1
        if self._resting is not None:
            self._document.remove_timeout_callback(self._resting)
        self._resting = self._document.add_timeout_callback(self._fit, _REST_MS)

    def _fit(self) -> None:
        self._resting = None
        self._write(status=html.escape(FITTING))
        future = self._executor.submit(_rebuilt, self._explorer, self._x.copy(), self._choices)
        future.add_done_callback(partial(self._fitted_elsewhere, self._changes))

    def _fitted_elsewhere(self, change: int, future: "Future[Explorer[Any]]") -> None:
        """Called in the thread of the fit; the page is changed in its own thread."""
        self._document.add_next_tick_callback(partial(self._fitted, change, future))

    def _fitted(self, change: int, future: "Future[Explorer[Any]]") -> None:
        if change != self._changes or future.cancelled():
            return  # something has moved since then, and has its own refit
        try:
            self._explorer = future.result()
        except (InputError, ConvergenceError) as error:
            self._write(status=html.escape(f"It could not be fitted again: {error}"))
            return
        self._show(RESTED)
        self._show_certificate()

    # --- content of the page ---

    def _show(self, status: str, *, serial: int = 0) -> None:
        """Update answers, weights and text for the present data and choices."""
        start = time.perf_counter()
        explorer, sources = self._explorer, self._sources
        view = explorer.view(self._x, self._choices)
        if self._flat:
            low, high = widgets.span(self._start.x[:, 0])
            grid = np.linspace(low, high, drawing.POINTS)
            sources.weight.data = {"x": grid, "weight": view.weighting.at(grid[:, None])}
        grids = self._grids.hold(view)
        sources.curves.data = dict(drawing.curves(view, grids))
        for plot, grid in zip(self._marginals, grids, strict=True):
            widgets.set_range(plot.x_range, float(grid[0]), float(grid[-1]))
        notes = [drawing.low_weights(view, LOW_WEIGHT), *view.notes]
        self._use.beta.title = f"beta = {self._choices.beta:.3g}"
        took = 1e3 * (time.perf_counter() - start)
        self._write(
            status=html.escape(f"{status} Computed in {took:.0f} ms."),
            table=drawing.table(view, explorer.posterior.parameter_names),
            notes="".join(f"<p>{html.escape(note)}</p>" for note in notes),
        )
        sources.answered.data = {
            "weight": view.weights,
            "colour": drawing.colours(view.weights),
            "edge": np.where(view.kept, "#333333", drawing.COLOURS[TRIMMED]).tolist(),
            "serial": np.full(len(view.weights), serial),
        }

    def _show_rows(self) -> None:
        """Update the positions of the rows, and the ranges of the axes."""
        view = self._explorer.view(self._x, self._choices)
        places = self._x[:, list(self._columns)]
        names = [shorten(self._names[c]) for c in self._columns]
        self._sources.points.data = {
            "x": places[:, 0].copy(),
            "y": view.weights if self._flat else places[:, 1].copy(),
            "weight": view.weights,
            "colour": drawing.colours(view.weights),
            "edge": ["#333333"] * len(places),
        }
        axes = [self._plot.x_range] if self._flat else [self._plot.x_range, self._plot.y_range]
        for axis, c in zip(axes, self._columns, strict=True):
            values = np.concatenate([self._start.x[:, c], self._x[:, c]])
            widgets.set_range(axis, *widgets.span(values))
        self._plot.xaxis.axis_label = names[0]
        if not self._flat:
            self._plot.yaxis.axis_label = names[1]

    def _show_certificate(self) -> None:
        self._write(certificate=drawing.certificate_text(self._explorer.posterior.certificate))

    def _write(self, **words: str) -> None:
        """Update texts by name; they are HTML, and all external text in them must be escaped."""
        self._words |= words
        self._sources.words.data = {name: [text] for name, text in self._words.items()}

    def _settle_numbers(self) -> None:
        """Set the number fields to the values of the selected row."""
        numbers = [each for each in (self._use.across_value, self._use.up_value) if each is not None]
        for number, c in zip(numbers, self._columns, strict=True):
            values = self._start.x[:, c]
            step = float(f"{np.subtract(*np.quantile(values, (0.75, 0.25))) / 10 or 0.1:.1g}")
            number.title, number.step = shorten(self._names[c]), step
            self._set(number, float(f"{self._x[self._row, c]:.6g}"))

    def _settle_controls(self) -> None:
        """Set the sliders to the present choices."""
        use, choices, j = self._use, self._choices, int(self._use.parameter.value)
        centre = float(np.log10(self._start.choices.beta))
        use.beta.start, use.beta.end = centre - _BETAS, centre + _BETAS
        if choices.zeta is None:
            use.zeta.disabled, use.zeta.title = True, "zeta: the weight of this model has none"
        else:
            use.zeta.start = min(_LOWEST_ZETA, choices.zeta)
            use.zeta.end = max(float(use.zeta.end), choices.zeta)
            self._set(use.zeta, choices.zeta)
        if self._start.own_prior is None:
            for each in (use.parameter, use.shift, use.width):
                each.disabled = True
            use.shift.title = "prior: only Gaussian ones can be moved"
        if TRIMMED not in self._start.comparisons:
            use.trimmed.disabled, use.trimmed.title = True, "NLE: this model has no density"
        self._set(use.shift, choices.shift[j])
        self._set(use.width, float(np.log2(choices.width[j])))
        self._set(use.beta, float(np.log10(choices.beta)))
        self._set(use.trimmed, choices.trimmed)
        self._settle_numbers()

    @property
    def _row(self) -> int:
        value = self._use.row.value
        return int(np.clip(value if isinstance(value, int | float) else 0, 0, len(self._x) - 1))

    def _set(self, control: Any, value: Any) -> None:
        """Change a control without triggering the callback for user actions."""
        self._own_doing = True
        try:
            control.value = value
        finally:
            self._own_doing = False


def _rebuilt(explorer: Explorer[Any], x: Float[np.ndarray, "n d_x"], choices: Choices) -> Explorer[Any]:
    """Refit everything, and compute the certificate, which takes a second and is cached."""
    found = explorer.rebuilt(x, choices)
    assert found.posterior.certificate is not None
    return found


_LEAD = (
    "Drag a row and watch; or choose one by its number and change its values with the arrow keys. Dark rows count, "
    "light ones do not."
)


def _legend(explorer: Explorer[Any]) -> str:
    shown = {explorer.posterior.label: drawing.OWN_COLOUR}
    shown |= {name: drawing.COLOURS[name] for name in (NLE, TRIMMED) if name in explorer.comparisons}
    shown["prior"] = drawing.PRIOR_COLOUR
    marks = " ".join(f'<span style="color: {c}">&#9632; {html.escape(name)}</span>' for name, c in shown.items())
    return (
        f"<p>{marks}</p><p>Marginal posteriors, each curve scaled to its peak. NLE: importance draws, all rows count "
        "alike. Trimmed: NLE without the farthest rows.</p>"
    )
