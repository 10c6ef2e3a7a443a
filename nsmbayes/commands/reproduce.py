"""Repeat an experiment of the paper and score the posteriors."""

import argparse
import json
from pathlib import Path

from nsmbayes import _checks, tasks
from nsmbayes._files import write_text
from nsmbayes.experiments.runner import PRESETS, Row, summarise
from nsmbayes.experiments.runner import run as run_experiment
from nsmbayes.methods import METHODS

_DEFAULT = "nle,nsm-bayes,nsm-bayes-conj"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("task", help=f"one of {', '.join(tasks.names())}")
    parser.add_argument(
        "--methods", default=_DEFAULT, help=f"comma-separated, of {', '.join(METHODS)} (default: {_DEFAULT})"
    )
    parser.add_argument("--preset", default="default", choices=list(PRESETS))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulations", type=int, default=100_000)
    parser.add_argument("--observations", type=int, default=100)
    parser.add_argument("--contamination", help="one of the task's kinds, or none (default: the task's first)")
    parser.add_argument("--json", type=Path, help="file for the rows, rewritten after each of them")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    task = tasks.get(options.task)
    methods = tuple(_checks.choice(name.strip(), "methods", tuple(METHODS)) for name in options.methods.split(","))
    rows: list[Row] = []
    for row in run_experiment(
        task,
        methods,
        preset=options.preset,
        repeats=_checks.integer(options.repeats, "repeats", at_least=1),
        seed=_checks.integer(options.seed, "seed"),
        m=options.simulations,
        n=options.observations,
        contamination=options.contamination,
        progress=not options.quiet,
    ):
        rows.append(row)
        print(f"repeat {row.repeat} {row.method}: MSE {row.mse:.2f}, covered {row.covered}, beta {row.beta:.3g}")
        if options.json is not None:
            kind = options.contamination or task.contaminations[0]
            document = {
                "task": task.name,
                "contamination": kind,
                "preset": options.preset,
                "rows": [r.as_json() for r in rows],
            }
            write_text(options.json, json.dumps(document, indent=2) + "\n")
    print(f"\n{summarise(rows)}")
    return 0
