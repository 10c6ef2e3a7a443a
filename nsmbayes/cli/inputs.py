"""Input files of commands: a saved method, and observations in a CSV file."""

import argparse
import csv
import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from nsmbayes._internal.columns import Names, Table
from nsmbayes._internal.text import shorten
from nsmbayes.errors import InputError
from nsmbayes.methods import SurrogateMethod, load

_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "-", ".", "?")
_UNNAMED = ("", "Unnamed: 0")  # names of index columns: written by R and pandas, and by pandas after reading one
_HEADER_REMEDY = "Say with --header yes or --header no whether line {} is a header."
_COMMAS = "Columns must be separated by commas, and decimals by points: export the file again."


def load_method(path: Path) -> Any:
    """Load the trained method that `save` wrote."""
    method = load(path)
    if not isinstance(method, SurrogateMethod):
        raise InputError(f"`model` {path} holds a posterior. Choose a folder that a method's save() wrote.")
    return method


def read_data(options: argparse.Namespace, method: SurrogateMethod) -> Table:
    """Read the observations for a method, from the options `data` and `header` of a command."""
    return read_csv(options.data, header=options.header, width=method.d_x)


def read_csv(path: Path, *, header: str = "auto", width: int | None = None) -> Table:
    """Read the numbers of a CSV file, with the names in its header; blank lines are skipped.

    A first line without any number is a header, unless all its cells are missing values. A first column without a name
    that counts the rows is left out, with a warning. All other cells must be finite numbers: missing values, decimal
    commas, other separators and text raise an error with the line number.

    Args:
        path: the file.
        header: "yes" or "no" if it is known whether the first line is a header.
        width: the expected number of columns; without it, decimal commas can be mistaken for separators.
    """
    lines = _lines(path)
    names = _header(path, lines, header)
    if names is not None:
        lines = lines[1:]
    if not lines:
        raise InputError(f"`data` {path} holds no observations. It must have one per row.")
    expected = len(names if names is not None else lines[0][1])
    for number, cells in lines:
        if len(cells) != expected:
            foreign = len(cells) == 2 * expected or any(_has_separator(cell) for cell in cells)
            hint = _COMMAS if foreign else "Are there row names, or commas within a cell?"
            raise InputError(
                f"`data` {path}, line {number}: {len(cells)} columns where the first row has {expected}. {hint}"
            )
    if names is not None and expected > 1 and names[0] in _UNNAMED:
        _check_index(path, lines)
        names, lines = names[1:], [(number, cells[1:]) for number, cells in lines]
    values = np.array([[_number(path, number, cell) for cell in cells] for number, cells in lines])
    if width is not None and values.shape[1] == 2 * width and all(_is_whole(c) for _, cells in lines for c in cells):
        raise InputError(
            f"`data` {path} has {2 * width} columns of whole numbers where {width} are expected. Are these decimal "
            f"commas? {_COMMAS}"
        )
    return Table(values, _names(path, names))


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """The lines that are not blank, with their numbers. A quoted empty cell is a missing value, not a blank line."""
    if not path.is_file():
        raise InputError(f"`data` {path} is not a file.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            return [
                (reader.line_num, [cell.strip() for cell in cells])
                for cells in reader
                if cells and (len(cells) > 1 or not cells[0] or cells[0].strip())
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"`data` {path} is not a CSV file in UTF-8 ({error}). Export it as one.") from error


def _header(path: Path, lines: list[tuple[int, list[str]]], header: str) -> list[str] | None:
    """The cells of the first line if it is a header, otherwise None."""
    if not lines or header == "no":
        return None
    number, cells = lines[0]
    if header == "yes" or _is_numbered(cells[1:], bool(cells) and cells[0] in _UNNAMED):
        return cells
    if _is_numbered(cells, len(lines) > 1):
        raise InputError(
            f"`data` {path}, line {number}: {shorten(','.join(cells))} can be an observation, and the header that "
            f"pandas writes for columns without names. {_HEADER_REMEDY.format(number)}"
        )
    if any(_is_number(cell) for cell in cells) or all(cell.lower() in _MISSING for cell in cells):
        return None
    return cells


def _is_numbered(cells: list[str], possible: bool) -> bool:
    """Whether `cells` are 0, 1, 2, ..., the names that pandas gives to unnamed columns."""
    return possible and bool(cells) and cells == [str(i) for i in range(len(cells))]


def _names(path: Path, names: list[str] | None) -> Names:
    if names is None or _is_numbered(names, True):
        return None
    if "" in names:
        raise InputError(
            f"`data` {path}: column {names.index('') + 1} has no name in the header. Name it, or remove the column."
        )
    return tuple(names)


def _check_index(path: Path, lines: list[tuple[int, list[str]]]) -> None:
    """Warn that the unnamed first column counts the rows and is left out; raise an error if it does not."""
    first = [cells[0] for _, cells in lines]
    if not any(first == [str(i + start) for i in range(len(first))] for start in (0, 1)):
        raise InputError(
            f"`data` {path}: the first column has no name in the header, and does not count the rows. If it is an "
            "index, export without it (pandas: to_csv(index=False), R: row.names=FALSE); if not, name it."
        )
    warnings.warn(
        f"`data` {path}: the first column has no name and counts the rows: it is left out as an index.", stacklevel=3
    )


def _number(path: Path, line: int, cell: str) -> float:
    if _is_number(cell) and math.isfinite(float(cell)):
        return float(cell)
    if cell.lower() in _MISSING:
        why = "is a missing value. Drop the row, or fill it."
    elif _has_separator(cell) or re.fullmatch(r"[+-]?\d+,\d+", cell):
        why = f"is not a number. {_COMMAS}"
    elif line == 1:
        why = "is not a finite number, and others in this line are. If it is a header, pass --header yes."
    else:
        why = "is not a finite number. Fix or drop the row."
    raise InputError(f"`data` {path}, line {line}: {shorten(repr(cell))} {why}")


def _has_separator(cell: str) -> bool:
    return ";" in cell or "\t" in cell


def _is_whole(cell: str) -> bool:
    return cell.lstrip("+-").isdigit()


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell)) and "_" not in cell and cell.isascii()
    except ValueError:  # unlike most programs, Python reads 1_000 and digits of other scripts as numbers
        return False
