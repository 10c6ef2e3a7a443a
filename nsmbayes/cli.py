"""The command line: nsmbayes demo | infer | certify | reproduce."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import nsmbayes
from nsmbayes._checks import InputError
from nsmbayes.experiments.runner import FailedRepeatsError
from nsmbayes.methods import NotTrainedError
from nsmbayes.samplers import ConvergenceError
from nsmbayes.simulators import BudgetError
from nsmbayes.training import TrainingError

_MENDABLE = (InputError, TrainingError, NotTrainedError, ConvergenceError, BudgetError, FailedRepeatsError, OSError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run the command, and turn what users can mend into one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return options.run(options)
    except _MENDABLE as error:
        print(f"nsmbayes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nsmbayes: interrupted", file=sys.stderr)
        return 130


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A line for users, without the place in the code that Python would add."""
    print(f"nsmbayes: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    from nsmbayes.commands import certify, demo, infer, reproduce

    parser = argparse.ArgumentParser(prog="nsmbayes", description=nsmbayes.__doc__)
    parser.add_argument("--version", action="version", version=f"nsmbayes {nsmbayes.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in (demo, infer, certify, reproduce):
        name = command.__name__.rsplit(".", 1)[-1]
        summary = (command.__doc__ or "").strip().splitlines()[0]
        sub = commands.add_parser(name, help=summary, description=summary)
        command.add_arguments(sub)
        sub.add_argument("--quiet", action="store_true", help="no progress bars")
        sub.set_defaults(run=command.run)
    return parser
