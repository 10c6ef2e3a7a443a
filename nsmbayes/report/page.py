"""The one-page HTML report of a posterior: self-contained, figures inlined."""

import html
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib import rc_context
from matplotlib.figure import Figure

from nsmbayes._internal.files import write_text
from nsmbayes._internal.text import escape, shorten
from nsmbayes.diagnostics import Outcome
from nsmbayes.plotting import plot_calibration, plot_excess, plot_marginals, plot_pairs, plot_weights
from nsmbayes.plotting.style import STYLE, save
from nsmbayes.plotting.weights import weighs_alike
from nsmbayes.posteriors import LOW_WEIGHT, Posterior
from nsmbayes.posteriors.outliers import HEAD

_LONGEST_TITLE = 200
_CSS = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.lead { color: #555; margin-top: 0; } figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem; text-align: right; border-bottom: 1px solid #e3e3e8; } th { font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
table.facts td, table.facts th { text-align: left; vertical-align: top; }
.box { background: #f6f4f8; border-left: 4px solid #942192; padding: .6rem 1rem; }
.warning { background: #fdf1e7; border-color: #D55E00; }
@media print { body { margin: 0; } }
"""


def write_report(
    posterior: Posterior,
    folder: str | Path,
    *,
    title: str | None = None,
    truth: Float[np.ndarray, " d"] | None = None,
    is_outlier: Bool[np.ndarray, " n"] | None = None,
    comparisons: dict[str, Posterior] | None = None,
    facts: dict[str, str] | None = None,
) -> Path:
    """Write `report.html` and its figures (PNG and SVG) to `folder`; return the path of the page."""
    folder = Path(folder)
    title = shorten(title or f"{posterior.label} posterior", _LONGEST_TITLE)
    shown = {posterior.label: posterior, **(comparisons or {})}
    alike = weighs_alike(posterior)
    figures = _figures(posterior, shown, truth, is_outlier, alike)
    for name, fig, _ in figures:
        save(fig, folder, name)
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="lead">{posterior.n:,} observations, {posterior.dim} parameter{"s" * (posterior.dim > 1)}, '
        f"β = {posterior.beta:.4g}</p>",
        f'<p class="box">{html.escape(_verdict(posterior, alike))}</p>',
        verdict_box(posterior.known_verdict()),
        *(
            f'<p class="box warning">The chains of the {html.escape(label)} posterior have not converged: do not rely '
            "on its numbers. Sample longer or from more chains.</p>"
            for label, each in shown.items()
            if not each.converged
        ),
        *(
            f'<p class="box warning">{html.escape(label)}: {html.escape(warning)}</p>'
            for label, each in shown.items()
            for warning in each.warnings
        ),
        f'<p class="box warning">{html.escape(posterior.about_dropped)}</p>' if posterior.provenance.dropped else "",
        "<h2>Parameters</h2>",
        _parameters(posterior, truth),
        *(
            f"<figure>{svg(fig, name)}<figcaption>{html.escape(caption)}</figcaption></figure>"
            for name, fig, caption in figures
        ),
        _short_calibration(posterior),
        "<h2>What is guaranteed</h2>",
        _guarantee(posterior),
        "<h2>Observations it distrusts</h2>",
        _distrusted(posterior, alike),
    ]
    if facts:
        body += ["<h2>Numbers</h2>", table((), list(facts.items()), kind="facts")]
    return write_text(folder / "report.html", page_html(title, body))


def verdict_box(verdict: Any) -> str:
    """HTML of the verdict on the bulk of the data; an empty string if there is none."""
    if verdict is None:
        return ""
    kind = "box warning" if verdict.outcome is Outcome.WRONG else "box"
    return f'<p class="{kind}"><b>Verdict.</b> {html.escape(escape(verdict.explain()))}</p>'


def page_html(title: str, body: Sequence[str]) -> str:
    """A complete HTML page with its style."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style></head>'
        f"<body>{''.join(body)}</body></html>"
    )


def _figures(
    posterior: Posterior,
    shown: dict[str, Posterior],
    truth: Float[np.ndarray, " d"] | None,
    is_outlier: Bool[np.ndarray, " n"] | None,
    alike: bool,
) -> list[tuple[str, Figure, str]]:
    """The figures, each with its name and its caption."""
    trust = "Observations, and the weight of each. One with a weight near zero cannot move the posterior."
    if alike:
        trust = f"Observations, and the weight of each: {posterior.label} weighs all of them alike."
    figures = [
        ("weights", plot_weights(posterior, is_outlier=is_outlier), trust),
        (
            "marginals",
            plot_marginals(shown, truth=truth),
            "Marginal posterior densities." + ("" if truth is None else " Dashed: the true parameters."),
        ),
    ]
    if posterior.dim > 1:
        caption = (
            "Every pair of parameters: the regions that hold 50 and 95 % of each posterior, and some of its draws."
        )
        figures.append(("pairs", plot_pairs(shown, truth=truth), caption))
    if posterior.calibration is not None and len(posterior.calibration.betas) > 1:
        figures.append(("calibration", plot_calibration(posterior.calibration), _calibration(posterior)))
    if posterior.suspects is not None:
        caption = (
            "The observations of each column, and what the fitted model lets expect of those that count. Where there "
            "are more than it explains they count less; those that count less than half are marked. Observations more "
            "than eight robust scales from the bulk are in the outermost bars."
        )
        figures.insert(1, ("excess", plot_excess(posterior), caption))
    return figures


def _calibration(posterior: Posterior) -> str:
    """A sentence about how the learning rate was chosen; an empty string if it was given."""
    if posterior.calibration is None:
        return ""
    return f"How the learning rate was chosen: {posterior.calibration.describe()}"


def _short_calibration(posterior: Posterior) -> str:
    """A paragraph about the calibration if it has too few values for a figure, otherwise an empty string."""
    few = posterior.calibration is not None and len(posterior.calibration.betas) < 2
    return f"<p>{html.escape(_calibration(posterior))}</p>" if few else ""


def _verdict(posterior: Posterior, alike: bool) -> str:
    if alike:
        return f"{posterior.label} weighs all observations alike: it does not say which of them are outliers."
    weights, factor = posterior.weights, posterior.factor_by_number()
    low = weights < LOW_WEIGHT
    if not low.any():
        return f"No observation is distrusted: every weight is at least {LOW_WEIGHT}."
    far = low if factor is None else weights < LOW_WEIGHT * factor.values
    reasons = {"lie far from the bulk of the data": far, "are more than the model explains where they lie": low & ~far}
    said = " and ".join(f"{rows.sum():,} {reason}" for reason, rows in reasons.items() if rows.any())
    return (
        f"{low.sum():,} of {posterior.n:,} observations have a weight below {LOW_WEIGHT}: {said}. They hardly move the "
        "posterior."
    )


def _parameters(posterior: Posterior, truth: Float[np.ndarray, " d"] | None) -> str:
    head = ["parameter", "mean", "sd", "2.5 %", "97.5 %", "prior mean", "prior sd"] + (
        [] if truth is None else ["truth"]
    )
    rows = []
    for j, name in enumerate(posterior.parameter_names):
        mean, std = posterior.mean[j], posterior.std[j]
        numbers = [mean, std, *posterior.interval(j), posterior.prior.mean[j], posterior.prior.std[j]]
        numbers += [] if truth is None else [truth[j]]
        rows.append([shorten(name), *(f"{value:.3f}" for value in numbers)])
    return table(head, rows)


def _guarantee(posterior: Posterior) -> str:
    certificate = posterior.certificate
    kind = "box" if certificate.robust else "box warning"
    marks = {True: "holds", False: "fails", None: "not needed"}
    rows = [(name, marks[check.holds], check.why) for name, check in certificate.checks.items()]
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in certificate.notes)
    constants = [(name, f"{value:.4g}") for name, value in certificate.constants.items()]
    details = f"<details><summary>Constants</summary>{table((), constants, kind='facts')}</details>"
    return (
        f'<p class="{kind}">{html.escape(certificate.verdict)}</p><p>Based on: {html.escape(certificate.theorem)}.</p>'
        + table(("assumption", "", "why"), rows, kind="facts")
        + notes
        + (details if constants else "")
    )


def _distrusted(posterior: Posterior, alike: bool) -> str:
    if alike:
        return f"<p>None: {html.escape(posterior.label)} weighs all observations alike, outliers as well.</p>"
    rows = posterior.outliers()
    note = (
        f"<p>The {len(rows)} smallest weights. Influence: KL divergence to the posterior without the observation.</p>"
    )
    return note + table(HEAD, [row.cells() for row in rows])


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "numbers") -> str:
    """An HTML table."""
    cells = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(escape(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f'<table class="{kind}">{f"<thead><tr>{cells}</tr></thead>" if head else ""}<tbody>{lines}</tbody></table>'


def svg(fig: Figure, name: str) -> str:
    """The figure as an SVG element; `name` makes its ids different from those of other figures."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        fig.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text[text.index("<svg") :])
