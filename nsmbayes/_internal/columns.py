"""Columns by name: the columns of observations are put into the order of the simulations, or an error is raised."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.text import listed
from nsmbayes.errors import InputError

Names = tuple[str, ...] | None


@dataclass(frozen=True)
class Table:
    """Numbers with a name for each column; accepted wherever a DataFrame is accepted."""

    values: Float[np.ndarray, "n d"]
    columns: Names

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)


def data_frame(columns: dict[str, Any], rows: tuple[str, ...]) -> Any:
    """Columns as a pandas DataFrame, with names for its rows."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise ImportError("A DataFrame needs pandas: pip install pandas.") from error
    return pd.DataFrame(columns, index=pd.Index(rows, name="parameter"))


def column_names(value: Any) -> Names:
    """The column names of a DataFrame or a table; None for an array, and for the default numbers of pandas."""
    columns = getattr(value, "column_names", getattr(value, "columns", None))
    if columns is None or isinstance(columns, str) or list(columns) == list(range(len(columns))):
        return None
    return tuple(map(str, columns))


def check_names(names: Any, argument: str, count: int | None = None) -> tuple[str, ...]:
    """`names` as a tuple of `count` different strings that can be saved to a file."""
    checks.instance(names, argument, tuple | list, "a tuple, e.g. ('alpha', 'beta')")
    names = tuple(names)
    count = len(names) if count is None else count
    if len(names) != count or not all(isinstance(name, str) for name in names) or len(set(names)) != count:
        shown = listed(tuple(map(repr, names)))
        raise InputError(f"`{argument}` must be {count} different strings; got {shown or 'none'}.")
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"`{argument}` has a name that is no valid text: {listed(names)}. Rename it.") from error
    return names


def named_matrix(
    value: Any,
    argument: str,
    known: Names,
    *,
    width: int | None = None,
    width_is: str,
    of: str = "the simulations",
    note: bool = True,
    missing: bool = False,
) -> Float[np.ndarray, "n d"]:
    """`value` as a matrix (see `checks.matrix`), with its columns in the order of the names `known`.

    `of` says in error messages whose names these are. Other names raise an error. Columns without names are used in
    their order, by default with a warning if there is more than one.
    """
    if known is not None and width is not None and len(known) != width:
        raise InputError(f"`x_names` must be {width} names, one per column of x; got {len(known)}: {listed(known)}.")
    found = column_names(value)
    if known is not None and found is not None and sorted(found) != sorted(known):
        raise InputError(
            f"`{argument}` has the columns {listed(found)}, but those of {of} are {listed(known)}. Select or rename "
            f"them, or pass the values alone, in the order of {of}: np.asarray({argument})."
        )
    matrix = checks.matrix(value, argument, width=width, width_is=width_is, missing=missing)
    if known is None:
        return matrix
    if found is None:
        if note:
            warn_unnamed(argument, known, of)
        return matrix
    return matrix[:, [found.index(name) for name in known]]


def ordered_sets(x: Any, known: Names, width: int) -> Any:
    """Data sets `x` with their columns in the order of the simulations."""
    if isinstance(x, list | tuple) and any(column_names(each) is not None for each in x):
        like = "columns, like the simulations"
        return [named_matrix(each, "x", known, width=width, width_is=like) for each in x]
    if known is not None:
        warn_unnamed("x", known, "the simulations")
    return x


def warn_unnamed(argument: str, known: tuple[str, ...], of: str) -> None:
    """Warn that columns without names are assumed to be the `known` ones, unless there is only one."""
    if len(known) > 1:
        warn_user(
            f"`{argument}` has no column names: its columns are taken to be {listed(known)}, in the order of {of}. "
            "Pass a DataFrame with these names to be sure.",
        )
