"""The command line: nsmbayes demo | infer | certify | reproduce."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import nsmbayes
from nsmbayes.cli import certify, demo, infer, reproduce
from nsmbayes.errors import BudgetError, ConvergenceError, InputError, NotTrainedError, TrainingError
from nsmbayes.experiments import Effort, FailedRepeatsError

_USER_ERRORS = (InputError, TrainingError, NotTrainedError, ConvergenceError, BudgetError, FailedRepeatsError, OSError)


def main(arguments: Sequence[str] | None = None, *, effort: Effort | None = None) -> int:
    """Parse the command line, run the command, and turn errors that users can fix into one line on stderr.

    With `effort`, networks are trained and posteriors sampled with less work than usual, for a trial run.
    """
    options = _parser().parse_args(arguments, argparse.Namespace(effort=Effort() if effort is None else effort))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return options.run(options)
    except _USER_ERRORS as error:
        print(f"nsmbayes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nsmbayes: interrupted", file=sys.stderr)
        return 130


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A line for users, without the place in the code that Python would add."""
    print(f"nsmbayes: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nsmbayes", description=(nsmbayes.__doc__ or "").splitlines()[0])
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
