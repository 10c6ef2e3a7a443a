"""The command line: nsmbayes demo | simulate | train | infer | certify | reproduce | bench."""

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nsmbayes.cli.arguments import parser
from nsmbayes.errors import (
    BudgetError,
    ConvergenceError,
    FailedRepeatsError,
    InputError,
    NotTrainedError,
    SimulationError,
    TrainingError,
)

if TYPE_CHECKING:
    from nsmbayes.experiments import Effort

_USER_ERRORS = (
    InputError,
    SimulationError,
    TrainingError,
    NotTrainedError,
    ConvergenceError,
    BudgetError,
    FailedRepeatsError,
    OSError,
)


def main(arguments: Sequence[str] | None = None, *, effort: "Effort | None" = None) -> int:
    """Parse the command line, run the command, and turn errors that users can fix into one line on stderr.

    With `effort`, networks are trained and posteriors sampled with less work than usual, for a trial run.
    """
    options = parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(options, effort)
    except _USER_ERRORS as error:
        print(f"nsmbayes: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nsmbayes: interrupted", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, effort: "Effort | None") -> int:
    """Import the command, and with it JAX, only now that there is something to run."""
    from nsmbayes.experiments import Effort

    options.effort = Effort() if effort is None else effort
    return importlib.import_module(f"nsmbayes.cli.{options.command}").run(options)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A line for users, without the place in the code that Python would add."""
    print(f"nsmbayes: warning: {message}", file=sys.stderr)
