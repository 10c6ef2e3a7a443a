"""Checks of user input. Every message names the argument, what was expected, what was given, and what to do."""

import math
import operator
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes.errors import InputError

_SHOWN = 5
# NumPy would convert all of these to floats: booleans, text, dates, objects, and the real parts of complex numbers.
_NOT_NUMBERS = "bcOSUMm"


def _to_numpy(value: Any, name: str) -> np.ndarray:
    if hasattr(value, "detach"):  # a torch tensor, possibly on a device and with a gradient
        value = value.detach().cpu()
    if np.ma.is_masked(value):
        raise InputError(f"`{name}` has masked entries, which would count as numbers. Drop or fill them.")
    try:
        array = np.asarray(value)
        if array.dtype.kind in _NOT_NUMBERS and array.size:
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"`{name}` must be an array of real numbers; got {type(value).__name__} that cannot be read as one. "
            f"If it does hold numbers, pass np.asarray({name}, dtype=float)."
        ) from error


def shown(rows: np.ndarray) -> str:
    """The first few row numbers, as text."""
    shown = ", ".join(str(i) for i in rows[:_SHOWN])
    return shown + (", ..." if len(rows) > _SHOWN else "")


def finite_array(value: Any, name: str) -> Float[np.ndarray, "..."]:
    """`value` as a float64 array of any rank whose entries are all finite."""
    array = _to_numpy(value, name)
    if not np.isfinite(array).all():
        raise InputError(f"`{name}` contains NaN or infinite values; every entry must be a finite number.")
    return array


def matrix(
    value: Any,
    name: str,
    *,
    width: int | None = None,
    min_rows: int = 1,
    width_is: str = "columns",
    missing: bool = False,
) -> Float[np.ndarray, "n d"]:
    """`value` as a finite float64 matrix with one observation per row; with `missing`, some cells may be NaN.

    A flat vector is taken as n observations of one number each, if `width` allows it.
    """
    array = _to_numpy(value, name)
    if array.ndim == 1 and width in (None, 1):
        array = array[:, None]
    if array.ndim != 2:
        expected = f"(n, {width})" if width else "(n, d)"
        raise InputError(
            f"`{name}` must have shape {expected}, one observation per row; got shape {array.shape}. Reshape it first."
        )
    if width is not None and array.shape[1] != width:
        raise InputError(f"`{name}` must have {width} {width_is}; got {array.shape[1]} (shape {array.shape}).")
    if array.shape[1] == 0:
        raise InputError(f"`{name}` must have at least one column; got shape {array.shape}.")
    if array.shape[0] < min_rows:
        raise InputError(
            f"`{name}` needs at least {min_rows} row{'s' if min_rows > 1 else ''}; got {array.shape[0]}. "
            "Pass more observations."
        )
    if missing:
        _check_cells(array, name)
        return array
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if bad.size:
        raise InputError(
            f"`{name}` has {bad.size} row{'s' if bad.size > 1 else ''} with NaN or infinite values "
            f"(row {shown(bad)}). Drop them with {name}[np.isfinite({name}).all(axis=1)], or find out where they "
            f"come from.{_about_cells(array, name)}"
        )
    return array


def _about_cells(array: Float[np.ndarray, "n d"], name: str) -> str:
    """The end of an error message that names methods for missing cells; empty if cells are not the problem."""
    alone = name == "x" and array.shape[1] > 1 and not np.isinf(array).any() and not np.isnan(array).all(axis=1).any()
    return " Observations may lack single cells in NSMBayes and NLE: missing='marginalise'." if alone else ""


def _check_cells(array: Float[np.ndarray, "n d"], name: str) -> None:
    """Raise an error for infinite cells, and for rows and columns without any value."""
    if np.isinf(array).any():
        rows = np.flatnonzero(np.isinf(array).any(axis=1))
        raise InputError(f"`{name}` has infinite values (row {shown(rows)}); a missing cell is NaN.")
    for axis, what in ((1, "row"), (0, "column")):
        empty = np.flatnonzero(np.isnan(array).all(axis=axis))
        if empty.size:
            raise InputError(f"`{name}` has no value at all in {what} {shown(empty)}. Drop it.")


def vector(value: Any, name: str, *, length: int | None = None) -> Float[np.ndarray, " d"]:
    """`value` as a finite float64 vector."""
    array = finite_array(value, name)
    if array.ndim == 0:
        array = array[None]
    if array.ndim != 1 or array.shape[0] == 0 or (length is not None and array.shape[0] != length):
        expected = f"({length},)" if length is not None else "(d,) with d > 0"
        raise InputError(f"`{name}` must be a vector of shape {expected}; got shape {array.shape}.")
    return array


def covariance(value: Any, name: str, *, size: int) -> Float[np.ndarray, "d d"]:
    """`value` as a symmetric positive definite matrix."""
    array = finite_array(value, name)
    if array.ndim == 0 and size == 1:
        array = array[None, None]
    if array.shape != (size, size):
        raise InputError(f"`{name}` must have shape ({size}, {size}); got {array.shape}.")
    scale = np.abs(array).max()
    if np.abs(array - array.T).max() > 1e-8 * scale:
        raise InputError(f"`{name}` is not symmetric. If rounding is the cause, pass ({name} + {name}.T) / 2.")
    array = array / 2 + array.T / 2
    diagonal = np.diag(array)
    if (diagonal <= 0).any():
        raise InputError(f"`{name}` is not positive definite: its diagonal must be positive; got {diagonal}.")
    spread = np.sqrt(diagonal)
    smallest = np.linalg.eigvalsh(array / np.outer(spread, spread))[0]
    if smallest <= 1e-12:
        raise InputError(
            f"`{name}` is singular or not positive definite (smallest eigenvalue of its correlation matrix: "
            f"{smallest:.1e}). Remove the redundant direction or add a small value to the diagonal."
        )
    return array


def positive(value: Any, name: str) -> float:
    """`value` as a finite number above zero."""
    number = real(value, name)
    if number <= 0:
        raise InputError(f"`{name}` must be positive; got {number!r:.50}.")
    return number


def optional_positive(value: Any, name: str) -> float | None:
    """`value` as a finite number above zero, or None if `value` is None."""
    return None if value is None else positive(value, name)


def fraction(value: Any, name: str, *, below: float = 1.0, finest: float = 0.0) -> float:
    """`value` as a number in [0, below); if it is not 0, at least `finest`."""
    number = real(value, name)
    if 0 < number < finest:
        raise InputError(f"`{name}` must be 0, or at least {finest:g}; got {number!r:.50}.")
    if not 0 <= number < below:
        raise InputError(f"`{name}` must lie in [0, {below:g}); got {number!r:.50}.")
    return number


def real(value: Any, name: str) -> float:
    """`value` as a finite float."""
    try:
        if isinstance(value, bool | np.bool_ | str | bytes | bytearray | np.complexfloating):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"`{name}` must be a number; got {value!r:.200}.") from error
    if not math.isfinite(number):
        raise InputError(f"`{name}` must be finite; got {number!r:.50}.")
    return number


def integer(value: Any, name: str, *, at_least: int = 0, at_most: int | None = None) -> int:
    """`value` as an int of at least `at_least` and at most `at_most`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError as error:
        raise InputError(f"`{name}` must be a whole number; got {value!r:.200}.") from error
    if number < at_least:
        raise InputError(f"`{name}` must be at least {at_least}; got {number!r:.50}.")
    if at_most is not None and number > at_most:
        raise InputError(f"`{name}` must be at most {at_most:,}; got {number!r:.50}.")
    return number


def choice(value: Any, name: str, options: tuple[str, ...]) -> str:
    """`value` as one of `options`."""
    if not isinstance(value, str) or value not in options:
        raise InputError(f"`{name}` must be one of {', '.join(map(repr, options))}; got {value!r:.200}.")
    return value


def shape(value: Any, name: str) -> tuple[int, ...]:
    """`value` as the shape of an array: an integer, or a tuple of integers."""
    sizes = value if isinstance(value, tuple | list) else (value,)
    return tuple(integer(size, name) for size in sizes)


def flag(value: Any, name: str) -> bool:
    """`value` as True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"`{name}` must be True or False; got {value!r:.200}.")
    return bool(value)


def instance(value: Any, name: str, kind: Any, example: str) -> Any:
    """Return `value` if it is an instance of `kind`; raise `InputError` otherwise, with `example` as what to pass."""
    if not isinstance(value, kind):
        raise InputError(f"`{name}` must be {example}; got {type(value).__name__}.")
    return value
