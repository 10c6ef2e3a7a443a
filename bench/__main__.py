"""The command line: `python -m bench [names] [--tiny] [--out folder]`."""

import argparse
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.registry import BENCHMARKS, Benchmark
from nsmbayes.experiments import machine

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks, store each result when it is finished, and print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure how long things take.")
    chosen = ", ".join(f"{b.name} ({b.summary.rstrip('.')})" for b in BENCHMARKS.values())
    parser.add_argument("names", nargs="*", metavar="name", help=f"which benchmarks; all by default: {chosen}")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--out", type=Path, help="folder for the JSON files (default: bench/results; none if tiny)")
    options = parser.parse_args(arguments)
    names = options.names or [name for name, benchmark in BENCHMARKS.items() if not benchmark.missing]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if missing := [BENCHMARKS[name].missing for name in names if BENCHMARKS[name].missing]:
        parser.error(missing[0])
    folder = options.out or (None if options.tiny else RESULTS)
    documents = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        documents.append(measure(BENCHMARKS[name], tiny=options.tiny))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.json").write_text(json.dumps(documents[-1], indent=2) + "\n")
    print(table(documents))
    return 0


def measure(benchmark: Benchmark, *, tiny: bool) -> dict[str, Any]:
    """Run one benchmark; return a JSON document of its rows, its sizes and the facts about the machine."""
    changed = benchmark.tiny if tiny else {}
    sizes = {name: p.default for name, p in inspect.signature(benchmark.run).parameters.items()} | changed
    before = machine.load()
    rows = benchmark.run(**changed)
    return {
        "name": benchmark.name,
        "summary": benchmark.summary,
        "sizes": sizes,
        "machine": machine.facts(),
        "load_before": before,
        "load_after": machine.load(),
        "rows": [row.as_json() for row in rows],
    }


def table(documents: Sequence[dict[str, Any]]) -> str:
    """Format the rows of all documents as one table."""
    lines = [f"{'benchmark':<12}{'what':<58}{'first call':>11}{'later':>11}{'later, CPU':>12}  note"]
    for document in documents:
        lines += [
            f"{document['name']:<12}{row['what']:<58}{_seconds(row['first_s']):>11}{_seconds(row['later_s']):>11}"
            f"{_seconds(row['later_cpu_s']):>12}  {_note(row['detail'])}".rstrip()
            for row in document["rows"]
        ]
    load = " / ".join(str(d["load_before"]) for d in documents)
    facts = documents[0]["machine"]
    return "\n".join([*lines, f"{facts['cpu']}, {facts['cores']} cores; load averages before each: {load}"])


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def _note(detail: dict[str, Any]) -> str:
    shown = {
        "epochs": "{} epochs",
        "cpu_s_with_compilation": "{:.1f} s of processor time with compilation",
        "times_faster_cpu": "{:.0f} times less processor time",
        "later_us_per_dataset": "{:.0f} us per data set",
        "times_faster_than_sbi_later": "{:.1f} times faster than sbi",
        "mean_sds": "mean off by {:.3f} standard deviations",
        "covariance_off": "covariance by {:.1%}",
        "peak_gib": "peak memory {:.2f} GiB",
        "paper_s_on_another_machine": "paper: {:g} s (Apple M4)",
    }
    return ", ".join(text.format(detail[key]) for key, text in shown.items() if detail.get(key) is not None)


if __name__ == "__main__":
    sys.exit(main())
