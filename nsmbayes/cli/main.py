"""The command line: nsmbayes demo | simulate | train | infer | diagnose | certify | explore | reproduce | ..."""

import argparse
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nsmbayes._internal.text import escape
from nsmbayes.cli.arguments import parser
from nsmbayes.cli.interrupts import INTERRUPTED, end, prompt_interrupts
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
_LINE = "\n"
_CLOSED = 141  # what shells say of a command that wrote to a closed pipe


def entry() -> None:
    """Run the command and end the process with its exit code.

    After Ctrl-C it ends at once: a compiled program may still be running, and Python would wait for it, or crash. A
    failure that nobody expected ends with 2, as other errors do: 1 is an answer of `certify`.
    """
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        print("nsmbayes: this is an error of the package; please report it with the lines above", file=sys.stderr)
        code = 2
    if code == INTERRUPTED:
        end()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None, *, effort: "Effort | None" = None) -> int:
    """Parse the command line, run the command, and turn errors that users can fix into one line on stderr.

    With `effort`, networks are trained and posteriors sampled with less work than usual, for a trial run.
    """
    options = parser().parse_args(arguments)
    options.quiet = options.quiet or not sys.stderr.isatty()
    try:
        with prompt_interrupts(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = _run(options, effort)
            sys.stdout.flush()
            return status
    except BrokenPipeError as error:
        if not _discard_closed_output():
            print(f"nsmbayes: {error}", file=sys.stderr)
            return 2
        return _CLOSED
    except _USER_ERRORS as error:
        print(f"nsmbayes: {escape(str(error), keep=_LINE)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nsmbayes: interrupted", file=sys.stderr)
        return INTERRUPTED


def _discard_closed_output() -> bool:
    """Whether nobody reads our output any more, as after `| head`; if so, what is left of it goes nowhere."""
    closed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            closed = True
    return closed


def _run(options: argparse.Namespace, effort: "Effort | None") -> int:
    """Import the command, and with it JAX, only now that there is something to run."""
    from nsmbayes._internal.waiting import quiet
    from nsmbayes.experiments import Effort
    from nsmbayes.training import interrupts_are_final

    options.effort = Effort() if effort is None else effort
    # a command that was interrupted does not go on with half of a network
    with quiet(options.quiet), interrupts_are_final():
        return importlib.import_module(f"nsmbayes.cli.{options.command}").run(options)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A line for users, without the place in the code that Python would add."""
    print(f"nsmbayes: warning: {escape(str(message), keep=_LINE)}", file=sys.stderr)
