"""The tables of docs/scale-study.json on the performance page."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def scale_section(study: Path) -> list[str]:
    """Known answers and large problems, as `make_scale.py` measured them."""
    if not study.exists():
        return []
    document = json.loads(study.read_text(encoding="utf-8"))
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in document["rows"]:
        found.setdefault(row["part"], {}).setdefault(row["size"], []).append(row)
    parts = [
        "## Known answers and large problems",
        f"By `python docs/make_scale.py`: NSM-Bayes with its defaults after {document['simulations']:,} simulations, "
        "one network for every line, a truth from the prior for every data set (SIR: the task's).",
    ]
    for name, (text, head, cells) in _SCALES.items():
        if name in found:
            where = sorted({_place(row) for rows in found[name].values() for row in rows})
            lines = [[f"{size:,}", *cells(rows)] for size, rows in found[name].items()]
            parts += [f"{text} ({'; '.join(where)}.)", table(head, lines)]
    return parts


def _place(row: dict[str, Any]) -> str:
    device = f"{row['cpu']}, {row['cores']} cores" if row["device"] == "cpu" else row["device"]
    return f"{device}, JAX {row['jax']}"


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _gaussian_cells(rows: list[dict[str, Any]]) -> list[str]:
    low, high = min(r["smallest_ratio"] for r in rows), max(r["largest_ratio"] for r in rows)
    return [
        str(len(rows)),
        f"{_mean(rows, 'mean_off'):.2f} ({max(r['mean_off'] for r in rows):.2f})",
        f"{max(r['worst_mean_off'] for r in rows):.2f}",
        f"{_mean(rows, 'sd_ratio'):.2f} ({low:.2f} to {high:.2f})",
        f"{_mean(rows, 'covered'):.0%}".replace("%", " %"),
    ]


def _decay_cells(rows: list[dict[str, Any]]) -> list[str]:
    return [
        str(len(rows)),
        f"{_mean(rows, 'good_weight'):.3f}",
        f"{100 * _mean(rows, 'good_below_tenth'):.1f} %",
        f"{_mean(rows, 'mse') / _mean(rows, 'nle_mse'):.2f}",
        *(f"{_mean(rows, name):.0%}".replace("%", " %") for name in ("covered", "nle_covered")),
    ]


def _trace_cells(rows: list[dict[str, Any]]) -> list[str]:
    later = [row["seconds"] for row in rows if not row["first"]]
    first = [row["seconds"] for row in rows if row["first"]]
    return [*(seconds(one) for one in first[:1]), ", ".join(seconds(one) for one in later)]


_SCALES: dict[str, tuple[str, list[str], Callable[[list[dict[str, Any]]], list[str]]]] = {
    "gaussian": (
        "A Gaussian location with as many parameters as columns, 100 observations of which 10 % lie 40 robust standard "
        "deviations away, compared with the exact posterior given the other 90 %. The error of the mean is in exact "
        "standard deviations (root mean square over the parameters; in brackets the worst data set).",
        ["d", "data sets", "means off", "worst parameter of all", "sds, relative", "covered"],
        _gaussian_cells,
    ),
    "decay": (
        "Decay curves at d_x times, clean, n = 4 d_x; squared errors relative to those of NLE with the same network.",
        ["d_x", "data sets", "weight of good rows", "below 0.1", "error, relative to NLE", "covered", "covered by NLE"],
        _decay_cells,
    ),
    "traces": (
        "Time series, each reduced to four summary statistics; 10 % of them are distant outliers.",
        ["n", "first posterior, with compilation", "later ones"],
        _trace_cells,
    ),
    "sir": (
        "SIR with undercounting, three columns; the programs are already compiled for another data set.",
        ["n", "posterior"],
        lambda rows: [seconds(_mean(rows, "seconds"))],
    ),
    "full": (
        "SIR: the posterior from a weighted subset, compared with the same draws reweighted to the loss of all rows.",
        ["n", "worst mean off, in sds", "sds, relative"],
        lambda rows: [
            f"{max(r['worst_mean_off'] for r in rows):.3f}",
            f"{min(r['smallest_ratio'] for r in rows):.2f} to {max(r['largest_ratio'] for r in rows):.2f}",
        ],
    ),
}


def seconds(value: float) -> str:
    """A duration in words."""
    if value >= 1:
        return f"{value:.1f} s"
    return f"{1e3 * value:.1f} ms" if value >= 1e-3 else f"{1e6 * value:.1f} us"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
