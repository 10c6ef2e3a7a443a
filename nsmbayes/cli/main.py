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
_CLOSED = 141  # exit code in shells for a command that wrote to a closed pipe


def entry() -> None:
    """Run the command and end the process with its exit code.

    After Ctrl-C the process ends immediately, because Python would wait for a running compiled program, or crash. An
    unexpected exception ends with exit code 2, like other errors; 1 is a result of `certify`.
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
    """Parse the command line, run the command, and print errors that users can fix as one line on stderr.

    `effort` reduces the work for networks and draws, for a trial run.
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
    """Return whether the output is closed, as after `| head`; if so, redirect the remaining output to /dev/null."""
    closed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            closed = True
    return closed


def _run(options: argparse.Namespace, effort: "Effort | None") -> int:
    """Import the command, and with it JAX, and run it."""
    from nsmbayes._internal.waiting import quiet
    from nsmbayes.experiments import Effort
    from nsmbayes.training import interrupts_are_final

    options.effort = Effort() if effort is None else effort
    # an interrupted command does not continue with a half-trained network
    with quiet(options.quiet), interrupts_are_final():
        return importlib.import_module(f"nsmbayes.cli.{options.command}").run(options)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the code location that Python would add."""
    print(f"nsmbayes: warning: {escape(str(message), keep=_LINE)}", file=sys.stderr)
