"""The files that users hand to a command: a saved method, and observations in a CSV file."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes.errors import InputError
from nsmbayes.methods import SurrogateMethod, load


def load_method(path: Path) -> Any:
    """The trained method that `save` wrote."""
    method = load(path)
    if not isinstance(method, SurrogateMethod):
        raise InputError(f"`model` {path} holds a posterior. Choose a folder that a method's save() wrote.")
    return method


def read_csv(path: Path) -> Float[np.ndarray, "n d_x"]:
    """Numbers of a CSV file; blank lines are skipped. A cell that is not a number is an error that names its line.

    A first line without any number in it is a header.
    """
    if not path.is_file():
        raise InputError(f"`data` {path} is not a file.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, cells) for cells in reader if len(cells) > 1 or any(map(str.strip, cells))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"`data` {path} is not a CSV file in UTF-8 ({error}). Export it as one.") from error
    has_header = bool(lines) and not any(map(_is_number, lines[0][1]))
    if len(lines) == has_header:
        raise InputError(f"`data` {path} holds no observations. It must have one per row.")
    width = len(lines[0][1])
    for number, cells in lines[has_header:]:
        if len(cells) != width:
            raise InputError(f"`data` {path}, line {number}: {len(cells)} columns where the first row has {width}.")
        for cell in cells:
            if not _is_number(cell) or not math.isfinite(float(cell)):
                raise InputError(f"`data` {path}, line {number}: {cell!r} is not a finite number. Fix or drop the row.")
    return np.array([[float(cell) for cell in cells] for _, cells in lines[has_header:]])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_000 as a number, nobody else does
