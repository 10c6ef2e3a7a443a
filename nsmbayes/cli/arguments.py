"""The commands and their options. This module imports nothing large, so that `--help` is fast.

Each command is implemented by the function `run` of the module with its name. The names of experiments, methods and
presets are repeated here; a test compares them with the registries.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nsmbayes import __version__

EXPERIMENTS = (
    "gnk", "sir", "sir-heavy", "radio", "sir-ablation", "gnk-ablation", "sir-beta", "gnk-npl-mmd", "sir-budget",
    "gnk-fraction", "gnk-distance", "gnk-size", "gnk-zeta", "gnk-simulations",
    "outliers-gnk", "outliers-gaussian", "outliers-pk", "outliers-sir", "outliers-radio",
)  # fmt: skip
METHODS = (
    "nle",
    "nsm-bayes",
    "nsm-bayes-amortised",
    "nsm-bayes-conj",
    "npe",
    "npe-rs",
    "npl-mmd",
    "ace",
    "gbi-sr",
    "rsnle",
)
PRESETS = ("default", "paper")
OUTLIERS = 15


_STORY = """\
from your simulator to a posterior:
  nsmbayes simulate my_module:simulator --prior prior.json -m 10000 --out campaign.zarr
  nsmbayes train campaign.zarr --out model
  nsmbayes infer model data.csv --out result        summary, posterior.json, draws.csv, report.html
  nsmbayes certify model data.csv                   what is proved, and which rows have low weights

nsmbayes COMMAND --help has the options of each. Progress is shown on terminals only, and not with --quiet.
exit codes: 0 done; 1 certify: not robust, doctor: a problem; 2 an error; 130 Ctrl-C; 141 the output was closed.
"""


class Command(NamedTuple):
    """Help text of a command, the function that adds its options, and examples."""

    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, ...] = ()


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; the chosen command is `command` of its result."""
    top = argparse.ArgumentParser(
        prog="nsmbayes",
        description="nsmbayes: amortised, provably robust simulation-based inference.",
        epilog=_STORY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"nsmbayes {__version__}")
    commands = top.add_subparsers(required=True, metavar="command", dest="command")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            epilog="\n  ".join(["examples:", *command.examples]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_options(sub)
        sub.add_argument("--quiet", action="store_true", help="no progress bars")
    return top


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="gnk", help="which built-in task (default: gnk)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the report (default: demo)")
    parser.add_argument("--simulations", type=int, default=100_000)
    parser.add_argument("--observations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for errors, coverage and seconds of each method")


def _simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("simulator", nargs="?", help="module:name, e.g. my_module:simulator for my_module.py here")
    parser.add_argument("--prior", type=Path, help="JSON file with a distribution, its parameters and names")
    parser.add_argument("-m", "--simulations", type=int, help="total number of rows of the campaign")
    parser.add_argument("--out", type=Path, help="campaign, e.g. campaign.zarr; one that exists is continued")
    parser.add_argument("--workers", type=int, help="processes (default: this one)")
    parser.add_argument("--dask", help="address of a Dask scheduler to simulate on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, help="rows committed together (default: a hundredth, at most 10,000)")
    parser.add_argument("--timeout", type=float, help="maximum seconds for a call of the simulator")
    parser.add_argument("--max-failures", type=float, default=0.05, help="fraction that may fail (default: 0.05)")
    parser.add_argument("--status", type=Path, metavar="CAMPAIGN", help="print the progress of a campaign, then exit")
    parser.add_argument("--json", type=Path, help="file for the progress of the campaign")


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("campaign", type=Path, help="what nsmbayes simulate wrote, e.g. campaign.zarr")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument(
        "--method", default="nsm-bayes", help="nsm-bayes (default), nsm-bayes-amortised, nsm-bayes-conj or nle"
    )
    parser.add_argument("--prior", type=Path, help="JSON file (default: the campaign's)")
    parser.add_argument("--grid-steps", help="comma-separated steps of discrete columns of x, 0 for a continuous one")
    parser.add_argument("--drop-failures", action="store_true", help="train without the rows that failed, and say so")
    parser.add_argument("--overwrite", action="store_true", help="replace a model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the results of training")


def _infer(parser: argparse.ArgumentParser) -> None:
    _add_model_and_data(parser)
    parser.add_argument("--out", type=Path, help="folder for posterior.json, draws.csv and report.html")
    parser.add_argument("--draws", type=int, default=1000, help="posterior draws to write (default: 1000)")
    parser.add_argument("--netcdf", type=Path, help="file for all groups that ArviZ reads, e.g. out.nc")
    parser.add_argument("--json", type=Path, help="file for mean, covariance, weights, verdict and warnings")


def _diagnose(parser: argparse.ArgumentParser) -> None:
    _add_model_and_data(parser)
    parser.add_argument("--out", type=Path, default=Path("diagnosis"), help="folder for the page (default: diagnosis)")
    parser.add_argument("--simulator", help="module:name of yours, or a built-in task (default: the surrogate)")
    parser.add_argument(
        "--calibration",
        type=int,
        metavar="K",
        help="check regions on K simulated data sets, 0 for none (default: 60 where that takes seconds, else none)",
    )
    parser.add_argument("--json", type=Path, help="file for the numbers")


def _certify(parser: argparse.ArgumentParser) -> None:
    _add_model_and_data(parser)
    parser.add_argument("--outliers", type=int, default=OUTLIERS, help=f"observations to list (default: {OUTLIERS})")
    parser.add_argument("--json", type=Path, help="file for the certificate and the table")


def _add_model_and_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder written by save() or by nsmbayes demo")
    parser.add_argument("data", type=Path, help="CSV file, one observation per row; a first line of names is allowed")
    parser.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the first line is a header (default: it is one if it holds no number)",
    )
    parser.add_argument("--beta", type=float, help="learning rate; calibrated if left out")
    parser.add_argument("--seed", type=int, default=0)


def _explore(parser: argparse.ArgumentParser) -> None:
    _add_model_and_data(parser)
    parser.add_argument("--port", type=int, default=5006, help="where the page is served (default: 5006; 0: any)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")


def _reproduce(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help=f"one of {', '.join(EXPERIMENTS)}, or all for those of the paper")
    parser.add_argument("--methods", help=f"comma-separated, of {', '.join(METHODS)} (default: the experiment's)")
    parser.add_argument("--preset", default="default", choices=PRESETS)
    parser.add_argument("--repeats", type=int, help="default: the experiment's")
    parser.add_argument("--seed", type=int, default=0, help="of the first repeat (default: 0)")
    parser.add_argument("--simulations", type=int, help="default: the experiment's")
    parser.add_argument("--observations", type=int, help="default: the experiment's")
    parser.add_argument("--contamination", help="one of the task's, or none (default: the experiment's)")
    parser.add_argument("--out", type=Path, help="folder for repeats and draws (default: reproduction)")
    parser.add_argument("--json", type=Path, help="one file for all rows, rewritten after every repeat")
    parser.add_argument("--resume", action="store_true", help="keep the repeats that are finished, run the others")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--dask", help="address of a Dask scheduler to run repeats on, or 'local'")


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="file for the measurements")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="file for the results")


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"), help="which shell")


COMMANDS = {
    "demo": Command(
        "Train on g-and-k, infer from contaminated data, write a report.",
        _demo,
        ("nsmbayes demo --out demo", "nsmbayes demo --simulations 20000 --observations 50 --json demo.json"),
    ),
    "simulate": Command(
        "Run your own simulator, on one core or many, and store its outputs.",
        _simulate,
        (
            "nsmbayes simulate my_module:simulator --prior prior.json -m 10000 --out campaign.zarr",
            "nsmbayes simulate my_module:simulator --prior prior.json -m 20000 --out campaign.zarr --workers 4",
            "nsmbayes simulate --status campaign.zarr",
        ),
    ),
    "train": Command(
        "Train a method on stored simulations.",
        _train,
        (
            "nsmbayes train campaign.zarr --out model",
            "nsmbayes train campaign.zarr --out model --method nsm-bayes-amortised --overwrite --json training.json",
        ),
    ),
    "infer": Command(
        "Apply a saved model to observations in a CSV file, one observation per row.",
        _infer,
        ("nsmbayes infer model data.csv --out result", "nsmbayes infer model data.csv --json posterior.json"),
    ),
    "diagnose": Command(
        "Outliers, or a wrong simulator? Compare the data with the simulations, and write a page.",
        _diagnose,
        (
            "nsmbayes diagnose model data.csv --out diagnosis",
            "nsmbayes diagnose model data.csv --simulator my_module:simulator --json diagnosis.json",
        ),
    ),
    "certify": Command(
        "Certify the robustness of a posterior, and list the observations with low weights. Exits with 0 if certified "
        "robust, 1 if not, 2 after an error.",
        _certify,
        ("nsmbayes certify model data.csv", "nsmbayes certify model data.csv --outliers 5 --json certificate.json"),
    ),
    "explore": Command(
        "Drag an observation on a local page, and watch.",
        _explore,
        ("nsmbayes explore model data.csv", "nsmbayes explore model data.csv --port 5010"),
    ),
    "reproduce": Command(
        "Run an experiment of the paper, or another one, and score the posteriors.",
        _reproduce,
        (
            "nsmbayes reproduce gnk --methods nle,nsm-bayes --repeats 3 --json rows.json",
            "nsmbayes reproduce all --resume --out reproduction",
        ),
    ),
    "bench": Command(
        "Measure the speed of this machine: training, posteriors, compilation; a minute or two.",
        _bench,
        ("nsmbayes bench --json speed.json",),
    ),
    "doctor": Command(
        "Check whether the package works on this machine: versions, devices, the cache of compiled programs.",
        _doctor,
        ("nsmbayes doctor", "nsmbayes doctor --json found.json"),
    ),
    "completion": Command(
        "Print a script that completes commands and options in a shell.",
        _completion,
        ('eval "$(nsmbayes completion bash)"',),
    ),
}
