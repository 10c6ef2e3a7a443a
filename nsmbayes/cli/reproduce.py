"""Run an experiment of the paper, or an additional one, and score the posteriors."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nsmbayes._internal import checks
from nsmbayes._internal.files import write_text
from nsmbayes.errors import InputError
from nsmbayes.experiments import DataSpec, Experiment, ExperimentResult, Store, StoredRepeat, catalogue
from nsmbayes.experiments import run as run_experiment
from nsmbayes.experiments.render import render, summarise


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    experiments = chosen_experiments(options)
    seed = checks.integer(options.seed, "seed")
    workers = None if options.workers is None else checks.integer(options.workers, "workers", at_least=1)
    if options.json is not None and options.json.is_dir():
        raise InputError(f"`json` must be a file; {options.json} is a folder.")
    results: list[ExperimentResult] = []
    for experiment in experiments:
        store = Store(options.out or Path("reproduction"), experiment)
        repeats: list[StoredRepeat] = []
        for repeat in run_experiment(
            experiment,
            store,
            seed=seed,
            resume=options.resume,
            workers=workers,
            dask=options.dask,
            effort=options.effort,
            progress=not options.quiet,
        ):
            repeats.append(repeat)
            for row in repeat.rows:
                tqdm.write(
                    f"repeat {row.repeat} {row.method}: MSE {row.mse:.2f}, covered {row.covered}, beta {row.beta:.3g}"
                )
            if options.json is not None:
                _write(options.json, [*results, ExperimentResult.from_repeats(experiment, repeats)])
        result = ExperimentResult.from_repeats(experiment, repeats, store)
        results.append(result)
        table, *drawn = render(result, progress=not options.quiet)
        print(f"\n{experiment.title}\n{summarise(result.rows)}\nRepeats and draws: {store.folder}")
        print(
            f"Tables: {table}\n"
            + (f"Figures: {drawn[0].parent} ({', '.join(path.stem for path in drawn)})\n" if drawn else "")
        )
    return 0


def chosen_experiments(options: argparse.Namespace) -> list[Experiment]:
    """The selected experiments, with the user's options in place of their defaults."""
    known = catalogue.PAPER if options.task == "all" else (catalogue.get(options.task),)
    return [_chosen(experiment, options) for experiment in known]


def _chosen(experiment: Experiment, options: argparse.Namespace) -> Experiment:
    if options.methods is not None:
        experiment = experiment.only(tuple(name.strip() for name in options.methods.split(",")))
    changed: dict[str, Any] = {"preset": options.preset}
    if options.repeats is not None:
        changed["repeats"] = options.repeats
    if options.simulations is not None:
        changed["m"] = options.simulations
    if options.contamination is not None:
        changed["data"] = (DataSpec(options.contamination),)
    experiment = replace(experiment, **changed)
    if options.observations is not None:
        experiment = replace(experiment, data=tuple(replace(d, n=options.observations) for d in experiment.data))
    return experiment


def _write(path: Path, results: Sequence[ExperimentResult]) -> None:
    documents = [result.as_json() for result in results]
    content = documents[0] if len(documents) == 1 else {"experiments": documents}
    write_text(path, json.dumps(content, indent=2) + "\n")
