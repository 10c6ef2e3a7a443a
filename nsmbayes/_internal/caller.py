"""Warnings that point at the user's line, also if they are raised deep in the package."""

import contextlib
import os
import sys
import warnings
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_BETWEEN = (_PACKAGE, contextlib.__file__)  # a context manager used as a decorator has a frame of its own


def warn_user(message: str) -> None:
    """Warn with the first line outside the package as location, like `skip_file_prefixes` from Python 3.12 on."""
    frame: FrameType = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_BETWEEN) and frame.f_back is not None:
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
