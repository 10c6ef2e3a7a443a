"""Simulators that are external programs, which read a file or arguments and write a file or text."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes.calls import Program
from nsmbayes.errors import InputError
from nsmbayes.simulators.base import Simulator, key_generators

_MOST_PARAMETERS = 1000  # number of parameters with which a template is tested


class CommandSimulator(Simulator):
    """A program that is started once for each theta.

    `command` and `template` are filled in as by Python's `str.format`: `{theta[0]}`, `{theta[1]}`, ... are the
    parameters with all their digits, `{seed}` is an integer below 2^31 for the program's random numbers, and `{input}`
    and `{output}` are paths of files in a temporary folder, which is removed after the call. The program runs in this
    folder.

    Args:
        command: the program and its arguments; no shell is used.
        template: the text to write to `{input}` before the program starts; None if it reads no file.
        parse: a function that gets the program's output as text: the file `{output}` if it occurs in the command or the
            template, otherwise stdout. By default, it returns all numbers in the text, separated by blanks, commas or
            line breaks.

    Example:
        >>> import jax
        >>> import nsmbayes as nsm
        >>> simulator = nsm.CommandSimulator(["echo", "{theta[0]}", "{theta[1]}"])
        >>> simulator.rows(jax.random.split(jax.random.key(0), 1), np.array([[0.1, 2.0]])).tolist()
        [[0.1, 2.0]]
    """

    def __init__(
        self, command: Sequence[str], *, template: str | None = None, parse: Callable[[str], Any] | None = None
    ):
        if isinstance(command, str) or not command or not all(isinstance(part, str) for part in command):
            raise InputError(f"`command` must be a list of strings, e.g. ['./simulate', '{{input}}']; got {command!r}.")
        if template is not None:
            checks.instance(template, "template", str, "the text of the input file, or None")
        program = shutil.which(command[0])
        if program is None:
            raise InputError(f"`command`: there is no program {command[0]!r}. Give its path, or make it executable.")
        self._caller = Program((os.path.abspath(program), *command[1:]), template, parse)
        try:
            self._caller.filled(np.zeros(_MOST_PARAMETERS), 0, Path())
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(
                f"`command` or `template` cannot be filled in ({error!r}): only {{theta[i]}}, {{seed}}, {{input}} and "
                "{output} are known, and a brace that is meant is written twice, {{ or }}."
            ) from None

    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """One observation per row; row i depends only on `keys[i]` and `theta[i]`."""
        return np.stack([self._caller.run(rng, row) for rng, row in zip(key_generators(keys), theta, strict=True)])

    def caller(self) -> Program:
        """An object that simulates numbered rows."""
        return self._caller

    def identity(self) -> tuple[Any, ...]:
        """The arguments, the template, the parser and the program's content, for the fingerprint of a campaign."""
        program = self._caller
        return (*program.command[1:], program.template, program.parse, Path(program.command[0]).read_bytes())
