"""One-page diagnosis of a data set: distance from the simulations, outliers or a wrong simulator, and other checks."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nsmbayes._internal.files import write_text
from nsmbayes._internal.text import escape, shorten
from nsmbayes.diagnostics import Reach, Verdict
from nsmbayes.errors import InputError
from nsmbayes.methods import Method
from nsmbayes.plotting import draw_predictive, plot_weights
from nsmbayes.plotting.style import save
from nsmbayes.posteriors import Posterior
from nsmbayes.posteriors.predictive import Checked
from nsmbayes.report.page import page_html, svg, table, verdict_box
from nsmbayes.report.sections import Section, calibration_section, sensitivity_section

_DATA_SETS = 100  # number of predictive data sets


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The diagnosis of a data set. Built by `diagnose`."""

    posterior: Posterior
    reach: Reach | None
    verdict: Verdict | None
    statistics: dict[str, Checked]
    sections: tuple[Section, ...]
    """Further sections of the page: calibration, sensitivity, and those passed to `diagnose`."""
    figures: dict[str, Figure]

    def as_json(self) -> dict[str, Any]:
        """Convert to a JSON document of plain numbers and text."""
        statistics = {
            name: {
                "observed": one.observed,
                "predicted": np.quantile(one.predicted, [0.025, 0.5, 0.975]).tolist(),
                "p": one.p_value,
            }
            for name, one in self.statistics.items()
        }
        found: dict[str, Any] = {
            "n": self.posterior.n,
            "method": self.posterior.method,
            "mean": self.posterior.mean.tolist(),
            "sd": self.posterior.std.tolist(),
            "check": None if self.reach is None else self.reach.as_json(),
            "verdict": None if self.verdict is None else self.verdict.as_json(),
            "predictive": statistics,
            "warnings": list(self.posterior.warnings),
        }
        return found | {section.name: section.numbers for section in self.sections}

    def write(self, folder: str | Path, *, title: str | None = None) -> Path:
        """Write `diagnosis.html` and its figures (PNG and SVG) to `folder`; return the path of the page."""
        folder, title = Path(folder), shorten(title or f"Diagnosis of a {self.posterior.label} posterior", 200)
        for name, fig in self.figures.items():
            save(fig, folder, name)
        body = [
            f"<h1>{html.escape(title)}</h1>",
            f'<p class="lead">{self.posterior.n:,} observations, {self.posterior.dim} parameters</p>',
            verdict_box(self.verdict),
            *(f'<p class="box warning">{html.escape(escape(text))}</p>' for text in self.posterior.warnings),
            "<h2>How far from all simulations?</h2>",
            _paragraph("Not checked: nothing to compare with." if self.reach is None else self.reach.explain()),
            "<h2>Outliers, or a wrong simulator?</h2>",
            _paragraph("Not checked: nothing to draw from." if self.verdict is None else self.verdict.explain()),
            *self._columns(),
            self._picture("weights", "Observations, and the weight of each."),
            "<h2>What the posterior predicts</h2>",
            self._picture("predictive", "Observations by weight, and predicted ones. Crosses: weights below 0.1."),
            self._statistics(),
        ]
        for section in self.sections:
            body += [f"<h2>{html.escape(section.title)}</h2>", *map(_paragraph, section.sentences)]
            body.append(self._picture(section.name, ""))
        return write_text(folder / "diagnosis.html", page_html(title, body))

    def _columns(self) -> list[str]:
        if self.verdict is None or not self.verdict.column_p_values:
            return []
        rows = [(name, f"{p:.3f}") for name, p in self.verdict.column_p_values.items()]
        return [table(("column", "p"), rows)]

    def _statistics(self) -> str:
        rows = []
        for name, one in self.statistics.items():
            low, middle, high = np.quantile(one.predicted, [0.025, 0.5, 0.975])
            rows.append((name, *(f"{value:.4g}" for value in (one.observed, middle, low, high)), f"{one.p_value:.3f}"))
        return table(("statistic", "observed", "predicted", "2.5 %", "97.5 %", "p"), rows) if rows else ""

    def _picture(self, name: str, caption: str) -> str:
        if name not in self.figures:
            return ""
        return f"<figure>{svg(self.figures[name], name)}<figcaption>{html.escape(caption)}</figcaption></figure>"


def diagnose(
    method: Method,
    posterior: Posterior,
    simulator: Any = None,
    *,
    calibration: int | None = None,
    sections: Sequence[Section] = (),
    seed: int = 0,
) -> Diagnosis:
    """Run all checks of a posterior and its data.

    Args:
        method: the method that built the posterior.
        posterior: the posterior.
        simulator: a simulator or a task, for the verdict, the predictions and the calibration; by default the
            surrogate, which cannot detect its own error.
        calibration: number of simulated data sets to check the coverage of the method's regions, at least 20, or 0 for
            none. By default 60 if all their posteriors take seconds, and none if each takes as long as this one.
        sections: further sections of the page.
        seed: an integer.
    """
    try:
        reach = method.check(posterior.x)
    except InputError:
        reach = None
    figures, verdict, statistics = {"weights": plot_weights(posterior)}, None, {}
    if simulator is not None or posterior.density is not None:
        verdict = posterior.verdict(simulator, seed=seed)
        predictive = posterior.predict(simulator, _DATA_SETS, seed=seed)
        statistics = predictive.check()
        figures["predictive"] = draw_predictive(predictive)
    more = [calibration_section(method, posterior, simulator, calibration, seed), sensitivity_section(posterior, seed)]
    sections = (*more, *sections)
    figures |= {section.name: section.figure for section in sections if section.figure is not None}
    found: dict[str, Any] = {"reach": reach, "verdict": verdict, "statistics": statistics, "figures": figures}
    return Diagnosis(posterior=posterior, sections=sections, **found)


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(escape(text))}</p>"
