"""Run an experiment of the paper, or one beyond it, and score the posteriors."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._files import write_text
from nsmbayes.experiments import catalogue
from nsmbayes.experiments.description import PRESETS, Data, Experiment
from nsmbayes.experiments.finished import Finished
from nsmbayes.experiments.publish import publish, summarise
from nsmbayes.experiments.runner import run as run_experiment
from nsmbayes.experiments.store import Store
from nsmbayes.methods import METHODS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    known = ", ".join(catalogue.EXPERIMENTS)
    parser.add_argument("task", help=f"one of {known}, or all for those of the paper")
    parser.add_argument("--methods", help=f"comma-separated, of {', '.join(METHODS)} (default: the experiment's)")
    parser.add_argument("--preset", default="default", choices=list(PRESETS))
    parser.add_argument("--repeats", type=int, help="default: the experiment's")
    parser.add_argument("--seed", type=int, default=0, help="of the first repeat (default: 0)")
    parser.add_argument("--simulations", type=int, help="default: the experiment's")
    parser.add_argument("--observations", type=int, help="default: the experiment's")
    parser.add_argument("--contamination", help="one of the task's kinds, or none (default: the experiment's)")
    parser.add_argument("--out", type=Path, help="folder for repeats and draws (default: reproduction)")
    parser.add_argument("--json", type=Path, help="one file for all rows, rewritten after every repeat")
    parser.add_argument("--resume", action="store_true", help="keep the repeats that are finished, run the others")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("--dask", help="address of a Dask scheduler to run repeats on, or 'local'")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    names = [e.name for e in catalogue.PAPER] if options.task == "all" else [options.task]
    experiments = [_chosen(catalogue.get(name), options) for name in names]
    seed = _checks.integer(options.seed, "seed")
    workers = None if options.workers is None else _checks.integer(options.workers, "workers", at_least=1)
    if options.json is not None and options.json.is_dir():
        raise InputError(f"`json` must be a file; {options.json} is a folder.")
    documents: list[dict[str, Any]] = []
    for experiment in experiments:
        store = Store(options.out or Path("reproduction"), experiment)
        how = {"seed": seed, "resume": options.resume, "workers": workers, "dask": options.dask}
        repeats: list[dict[str, Any]] = []
        for repeat in run_experiment(experiment, store, **how, progress=not options.quiet):
            repeats = sorted([*repeats, repeat], key=lambda r: r["seed"])
            for row in repeat["rows"]:
                tqdm.write(
                    f"repeat {row['repeat']} {row['method']}: MSE {row['mse']:.2f}, covered {row['covered']}, beta "
                    f"{row['beta']:.3g}"
                )
            if options.json is not None:
                _write(options.json, [*documents, _document(experiment, repeats)])
        documents.append(_document(experiment, repeats))
        run = Finished(experiment, documents[-1], repeats, store)
        table, *drawn = publish(run, progress=not options.quiet)
        print(f"\n{experiment.title}\n{summarise(run.rows)}\nRepeats and draws: {store.folder}")
        print(
            f"Tables: {table}\n"
            + (f"Figures: {drawn[0].parent} ({', '.join(p.stem for p in drawn)})\n" if drawn else "")
        )
    return 0


def _chosen(experiment: Experiment, options: argparse.Namespace) -> Experiment:
    """The experiment with what the user wants otherwise."""
    if options.methods is not None:
        experiment = experiment.only(tuple(name.strip() for name in options.methods.split(",")))
    changed: dict[str, Any] = {"preset": options.preset}
    if options.repeats is not None:
        changed["repeats"] = options.repeats
    if options.simulations is not None:
        changed["m"] = options.simulations
    if options.contamination is not None:
        changed["data"] = (Data(options.contamination),)
    experiment = replace(experiment, **changed)
    if options.observations is not None:
        experiment = replace(experiment, data=tuple(replace(d, n=options.observations) for d in experiment.data))
    return experiment


def _document(experiment: Experiment, repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of all repeats so far."""
    rows = [row for repeat in repeats for row in repeat["rows"]]
    return experiment.as_json() | {"machine": repeats[0]["machine"] if repeats else None, "rows": rows}


def _write(path: Path, documents: list[dict[str, Any]]) -> None:
    content = documents[0] if len(documents) == 1 else {"experiments": documents}
    write_text(path, json.dumps(content, indent=2) + "\n")
