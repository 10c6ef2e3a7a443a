"""Start or continue a campaign of simulations, or print the progress of one."""

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nsmbayes._internal.files import write_text
from nsmbayes.errors import InputError
from nsmbayes.plotting import plot_failures
from nsmbayes.plotting.style import save
from nsmbayes.simulators.campaigns import Campaign, read_prior, simulate


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.status is not None:
        _tell(Campaign(options.status), options.json)
        return 0
    for name, flag in (
        ("simulator", "module:simulator"),
        ("prior", "--prior"),
        ("simulations", "-m"),
        ("out", "--out"),
    ):
        if getattr(options, name) is None:
            raise InputError(
                f"`{flag}` is missing: nsmbayes simulate module:simulator --prior prior.json -m 10000 --out c.zarr"
            )
    prior, names = read_prior(options.prior)
    if options.workers is not None and options.dask is not None:
        raise InputError("`--workers` and `--dask` exclude each other: a Dask cluster has its own workers.")
    campaign = simulate(
        named_simulator(options.simulator),
        prior,
        options.simulations,
        out=options.out,
        seed=options.seed,
        executor=options.dask or options.workers,
        batch=options.batch,
        timeout=options.timeout,
        max_failures=options.max_failures,
        parameter_names=names,
        progress=not options.quiet,
    )
    _tell(campaign, options.json)
    return 0


def _tell(campaign: Campaign, file: Path | None) -> None:
    progress = campaign.progress()
    print(progress.describe())
    if file is not None:
        write_text(file, json.dumps({"campaign": str(campaign.path)} | asdict(progress), indent=2) + "\n")
    if progress.failed:
        print(campaign.failures().describe())
        folder = campaign.path.parent
        print(f"Where they failed: {save(plot_failures(campaign), folder, f'{campaign.path.stem}-failures')}")


def named_simulator(text: str) -> Any:
    """Import the object `module:name`; modules are searched in the current folder first."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise InputError(f"`simulator` must be module:name, e.g. my_module:simulator for my_module.py; got {text!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise InputError(f"`simulator`: there is no module {module!r} in {Path.cwd()} or installed.") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"`simulator`: {module} has no {name!r}.")
        found = getattr(found, part)
    return found
