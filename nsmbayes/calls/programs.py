"""Callers for programs that are started once for each theta."""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes.calls.generators import row_generators

_SHOWN = 200  # number of characters of stderr in error messages


class Program:
    """A caller for a program: a command, the text of its input file, and a function that parses its output."""

    calls_of = 1

    def __init__(self, command: tuple[str, ...], template: str | None, parse: Callable[[str], Any] | None):
        self.command, self.template, self.parse = command, template, parse

    def numbered(self, seed: int, first: int, theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """The observation of row `first`."""
        return self.run(row_generators(seed).at(first), theta[0])[None]

    def filled(self, theta: Float[np.ndarray, " d_theta"], seed: int, folder: Path) -> tuple[list[str], str | None]:
        """The command and the text of the input file for one theta."""
        names = {
            "theta": [repr(float(value)) for value in theta],
            "seed": seed,
            "input": folder / "input",
            "output": folder / "output",
        }
        command = [self.command[0], *(part.format(**names) for part in self.command[1:])]
        return command, None if self.template is None else self.template.format(**names)

    def run(self, rng: np.random.Generator, theta: Float[np.ndarray, " d_theta"]) -> Float[np.ndarray, " d_x"]:
        """Start the program, wait for it, and parse its output."""
        with tempfile.TemporaryDirectory(prefix="nsmbayes-") as name:
            folder = Path(name)
            command, text = self.filled(theta, int(rng.integers(2**31)), folder)
            if text is not None:
                (folder / "input").write_text(text, encoding="utf-8")
            written = _output(command, folder)
            if any("{output}" in part for part in (*self.command, self.template or "")):
                written = (folder / "output").read_text(encoding="utf-8")
        found = (self.parse or _numbers)(written)
        return np.asarray(found, dtype=np.float64).ravel()


def _output(command: list[str], folder: Path) -> str:
    """Run the program and return its stdout."""
    ended = subprocess.run(command, cwd=folder, text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode != 0:
        said = ended.stderr.strip()[-_SHOWN:]
        raise RuntimeError(f"the program ended with status {ended.returncode}" + (f": {said}" if said else ""))
    return ended.stdout


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.replace(",", " ").split()]
