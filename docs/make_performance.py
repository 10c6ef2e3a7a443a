"""Write docs/performance.md and its figures from what was measured: no number on that page is typed by hand.

`python docs/make_performance.py` uses whatever there is in bench/results and docs/scale-study.json. With `--check` it
only tells whether the page is up to date.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scale_tables import scale_section, seconds, table

DOCS = Path(__file__).parent
RESULTS, PICTURES = DOCS.parent / "bench" / "results", DOCS / "images" / "performance"
PAGE = DOCS / "performance.md"
STUDY = DOCS / "scale-study.json"
_BLUE, _RED, _GREY = "#4477AA", "#bd453c", "#666666"


@dataclass(frozen=True)
class Curve:
    """One measured cost against one size."""

    label: str
    sizes: Sequence[float]
    costs: Sequence[float]


@dataclass(frozen=True)
class Growth:
    """What one figure shows: which result, how its rows become curves, and the exponent that theory expects."""

    name: str
    title: str
    text: str
    size: str
    cost: str
    exponent: float
    why: str
    """Why this exponent is expected."""
    curves: Callable[[list[dict[str, Any]]], list[Curve]]


def _curve(label: str, size: str, cost: str, **only: Any) -> Callable[[list[dict[str, Any]]], Curve]:
    """The rows that have a size and a cost, in their detail or as `later_s`, and all other details asked for.

    `cpu_s` is the processor time of later calls, which a busy machine changes less, or their wall time.
    """

    def take(rows: list[dict[str, Any]]) -> Curve:
        flat = [row["detail"] | {"later_s": row["later_s"], "cpu_s": _cpu(row)} for row in rows]
        kept = [r for r in flat if size in r and cost in r and all(r.get(key) == value for key, value in only.items())]
        kept.sort(key=lambda row: row[size])
        return Curve(label, [row[size] for row in kept], [row[cost] for row in kept])

    return take


def _cpu(row: dict[str, Any]) -> float:
    return row.get("later_cpu_s") or row["later_s"]


def _named_by_n(rows: list[dict[str, Any]]) -> Curve:
    """The rows that are called after their number of observations and nothing else."""
    named = [(re.fullmatch(r"n = ([\d,]+)", row["what"]), _cpu(row)) for row in rows]
    kept = sorted((int(match[1].replace(",", "")), cost) for match, cost in named if match)
    return Curve("NSM-Bayes", [n for n, _ in kept], [cost for _, cost in kept])


def _curves(*takes: Callable[[list[dict[str, Any]]], Curve]) -> Callable[[list[dict[str, Any]]], list[Curve]]:
    return lambda rows: [curve for take in takes if (curve := take(rows)).sizes]


GROWTHS = (
    Growth(
        "columns",
        "Columns of x",
        "Training a mixture density network of x = A theta + noise, without compilation.",
        "columns d_x",
        "us per simulation and epoch",
        2.0,
        "a component has d_x (d_x + 1) / 2 entries in its factor",
        _curves(
            _curve("factors of precisions", "columns", "us_per_simulation", factor="precision"),
            _curve("factors of covariances", "columns", "us_per_simulation", factor="covariance"),
        ),
    ),
    Growth(
        "observations",
        "Observations",
        "The calibrated posterior of NSM-Bayes on SIR data, three columns, after compilation.",
        "observations n",
        "seconds of processor time",
        0.0,
        "beyond a few thousand observations the loss is compressed",
        _curves(_named_by_n),
    ),
    Growth(
        "parameters",
        "Parameters",
        "The posterior of NSM-Bayes at beta = 1 after compilation, two columns, 100 observations.",
        "parameters d_theta",
        "seconds of processor time",
        1.0,
        "a step of the sampler costs the same, and more of them are needed",
        _curves(_curve("NSM-Bayes", "parameters", "cpu_s")),
    ),
    Growth(
        "budget",
        "Simulations",
        "One epoch of training, NSM-Bayes on g-and-k.",
        "simulations m",
        "seconds per epoch",
        1.0,
        "every simulation is used once",
        _curves(_curve("NSM-Bayes", "simulations", "later_s")),
    ),
    Growth(
        "batch",
        "Data sets",
        "Posteriors of NSM-Bayes-conj of many data sets of 100 observations at once, at a fixed learning rate.",
        "data sets",
        "seconds of processor time",
        1.0,
        "each has its own location, scatter and sums",
        _curves(_curve("NSM-Bayes-conj", "datasets", "cpu_s")),
    ),
)


def page() -> str:
    """The whole page."""
    parts = [
        "# Performance",
        "Made by `python docs/make_performance.py` from the measurements of `make bench`. `nsmbayes bench` measures "
        "your own machine in a minute or two; `make bench-check` compares it with a baseline that "
        "`python -m bench.check --store` stored before.",
        "Compiled programs are kept in your cache folder (`~/.cache/nsmbayes` on Linux), so the next process "
        "compiles almost nothing. `NSMBAYES_CACHE=off` switches this off, and a path moves the folder. It is JAX's "
        "persistent compilation cache: if you have set a folder for JAX yourself, it is not changed. The measurements "
        "here do not use the cache.",
    ]
    parts += scale_section(STUDY)
    for part in (_growth, _beside_sbi, _held_out, _devices, _memory):
        parts += part()
    return "\n\n".join(parts) + "\n"


def draw() -> None:
    """The figures of all growths that were measured."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for growth in GROWTHS:
        if curves := _measured(growth):
            figure(growth, curves).savefig(PICTURES / f"{growth.name}.png", dpi=110)


def figure(growth: Growth, curves: Sequence[Curve]) -> Figure:
    """Costs against sizes on log-log axes, with a line of the expected exponent through the last point."""
    fig = Figure(figsize=(6, 3.8), layout="constrained")
    axes = fig.subplots()
    main = curves[0]
    sizes = np.array([min(main.sizes), max(main.sizes)], float)
    expected = main.costs[-1] * (sizes / main.sizes[-1]) ** growth.exponent
    axes.plot(sizes, expected, color=_GREY, linestyle=":", label=f"exponent {growth.exponent:g}")
    for curve, colour, marker in zip(curves, (_BLUE, _RED), "os", strict=False):
        axes.plot(curve.sizes, curve.costs, color=colour, marker=marker, label=curve.label)
    axes.set(xscale="log", yscale="log", xlabel=growth.size, ylabel=growth.cost)
    axes.set_xticks(main.sizes, [f"{size:,}" for size in main.sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return fig


def slope(curve: Curve) -> float:
    """The exponent between the two largest sizes of a curve."""
    (a, b), (low, high) = curve.sizes[-2:], curve.costs[-2:]
    return float(np.log(high / low) / np.log(b / a))


def _load(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _measured(growth: Growth) -> list[Curve]:
    """The curves of a growth with at least two sizes."""
    document = _load(growth.name)
    return [] if document is None else [c for c in growth.curves(document["rows"]) if len(c.sizes) > 1]


def _growth() -> list[str]:
    parts = []
    for growth in GROWTHS:
        if not (curves := _measured(growth)):
            continue
        document = _load(growth.name) or {}
        found = "; ".join(f"{curve.label} {slope(curve):.1f}" for curve in curves)
        compiled = [row["detail"]["compile_s"] for row in document["rows"] if "compile_s" in row["detail"]]
        compiling = f" Compilation takes {min(compiled):.1f} to {max(compiled):.1f} s." if compiled else ""
        parts += [
            f"## {growth.title}",
            f"{growth.text} Expected exponent {growth.exponent:g}: {growth.why}. Between the two largest sizes: "
            f"{found}.{compiling} {_where(document)}",
            f"![{growth.name}](images/performance/{growth.name}.png)",
        ]
        cells = [[f"{size:,}", *(_cell(curve, size) for curve in curves)] for size in curves[0].sizes]
        parts.append(table([growth.size, *(f"{curve.label}, {growth.cost}" for curve in curves)], cells))
    return parts


def _cell(curve: Curve, size: float) -> str:
    return f"{curve.costs[list(curve.sizes).index(size)]:.3g}" if size in curve.sizes else ""


def _beside_sbi() -> list[str]:
    if (document := _load("sbi")) is None:
        return []
    cells = []
    for row in document["rows"]:
        detail = row["detail"]
        effective = f"{detail['smallest_ess'] / row['later_s']:,.0f}" if "smallest_ess" in detail else ""
        name = "times_less_processor_time_than_sbi"
        faster = f"{detail[name]:.0f}" if name in detail else ""
        held_out = f"{detail['held_out_log_prob']:.3f}" if "held_out_log_prob" in detail else ""
        cells.append([row["what"], seconds(row["first_s"]), seconds(row["later_s"]), effective, held_out, faster])
    head = [
        "what",
        "first call",
        "later calls",
        "effective draws per second",
        "held-out log density",
        "times less processor time",
    ]
    return [
        "## Beside sbi",
        "The same simulations and data in one run; `make bench-sbi` repeats it. First calls compile. Ratios are of "
        "processor time, which a busy machine distorts less. "
        f"{_where(document)}",
        table(head, cells),
    ]


def _held_out() -> list[str]:
    if (document := _load("held-out")) is None:
        return []
    cells = [
        [row["what"], f"{d['held_out_log_prob']:.3f}", _apart(d), str(d["epochs"]), seconds(_cpu(row))]
        for row in document["rows"]
        for d in [row["detail"]]
    ]
    sizes = document["sizes"]
    return [
        "## Held-out density",
        f"Eight summaries of a noisy predator-prey model with four parameters, {sizes['simulations']:,} simulations: "
        f"the mean log density of {sizes['held_out']:,} others, each trained with its default settings. "
        f"{_where(document)}",
        table(["what", "held-out log density", "more than sbi's", "epochs", "processor time"], cells),
    ]


def _apart(detail: dict[str, Any]) -> str:
    """The difference with its standard error; nothing for sbi itself."""
    error = detail["standard_error"]
    return f"{detail['more_than_sbi']:+.3f} ± {error:.3f}" if error else ""


def _devices() -> list[str]:
    if (document := _load("devices")) is None:
        return []
    cells = []
    for row in document["rows"]:
        detail = row["detail"]
        rate = f"{detail['effective_draws_per_s']:,.0f}" if "effective_draws_per_s" in detail else ""
        fraction = f"{detail['gflops'] / detail['matrix_gflops']['float32']:.0%}" if "gflops" in detail else ""
        cells.append([row["what"], seconds(row["later_s"]), rate, fraction, f"{detail['compile_s']:.1f} s"])
    rates = {row["detail"]["device"]: row["detail"]["matrix_gflops"] for row in document["rows"]}
    said = "; ".join(f"{name} {r['float32']:,.0f} and {r['float64']:,.0f}" for name, r in rates.items())
    return [
        "## Devices",
        f"Matrix products in float32 and float64, GFLOP/s: {said}. Of training, the fraction of the first rate counts "
        f"the products with the network's weights alone. {_faster(document['rows'])}{_where(document)}",
        table(
            ["what", "after compilation", "effective draws per second", "fraction of the matrix rate", "compilation"],
            cells,
        ),
    ]


def _faster(rows: list[dict[str, Any]]) -> str:
    """In which measurements the accelerator beats the processor; nothing without one."""
    costs: dict[str, dict[str, float]] = {}
    for row in rows:
        device, what = row["what"].split(": ", 1)
        costs.setdefault(what, {})[device] = row["later_s"]
    both = {
        what: found["cpu"] / cost
        for what, found in costs.items()
        for name, cost in found.items()
        if name != "cpu" and "cpu" in found
    }
    if not both:
        return ""
    wins = {what: ratio for what, ratio in both.items() if ratio >= 1}
    span = f" by {min(wins.values()):.1f} to {max(wins.values()):.0f} times" if wins else ""
    lost = "; ".join(f"{what} ({1 / ratio:.1f} times)" for what, ratio in both.items() if ratio < 1)
    slower = f" It is slower in: {lost}." if lost else ""
    return (
        f"The accelerator is faster in {len(wins)} of {len(both)} measurements{span}.{slower} "
        "The device is the one that JAX chooses; `jax.default_device` or `JAX_PLATFORMS=cpu` changes it. "
    )


def _memory() -> list[str]:
    found = [(name, document) for name in ("memory", "observations") if (document := _load(name)) is not None]
    cells = [
        [row["what"], f"{row['detail']['peak_gib']:.2f} GiB"]
        for _, document in found
        for row in document["rows"]
        if "peak_gib" in row["detail"]
    ]
    if not cells:
        return []
    return ["## Memory", "The largest memory of the process.", table(["what", "peak"], cells)]


def _where(document: dict[str, Any]) -> str:
    machine = document["machine"]
    device = "" if machine.get("jax_device", "cpu") == "cpu" else f", {machine['jax_device']}"
    load = document.get("load_before")
    busy = f", load {load[0]:g} before" if load else ""
    return f"({machine['cpu']}, {machine['cores']} cores{device}, JAX {machine['packages']['jax']}{busy}.)"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        raise SystemExit(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    draw()
    PAGE.write_text(page(), encoding="utf-8")
