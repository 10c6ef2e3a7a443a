"""A piece of work: some rows of a campaign, how they are simulated, and their outcome."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, UInt8

from nsmbayes.errors import InputError

_LONGEST = 200  # largest number of characters of a reason


class Caller(Protocol):
    """An object that simulates numbered rows, made by `nsmbayes.simulators.Simulator.caller`."""

    calls_of: int
    """Number of rows of a call: rows 0 to calls_of - 1, the next calls_of rows, and so on."""

    def numbered(self, seed: int, first: int, theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """Observations of `calls_of` rows, or of one row, starting at row `first`."""
        ...


class RowStatus(IntEnum):
    """The status of a row: pending, valid, or the kind of its failure."""

    PENDING = 0
    VALID = 1
    RAISED = 2
    NOT_FINITE = 3
    TIMED_OUT = 4
    DIED = 5


class Work(NamedTuple):
    """Rows `start` to `stop` of a seed. `theta` may have more rows: it starts at row `offset`, the start of a call."""

    seed: int
    start: int
    stop: int
    offset: int
    theta: Float[np.ndarray, "rows d_theta"]


class Call(NamedTuple):
    """The rows of one call of the simulator."""

    first: int
    size: int


class Outcome(NamedTuple):
    """The outcome of the rows from `start` on. Failed rows have NaN, or the values that the simulator returned."""

    start: int
    x: Float[np.ndarray, "rows d_x"]
    status: UInt8[np.ndarray, " rows"]
    reasons: dict[int, str]
    """The reasons why rows failed, by row number."""


Row = tuple[Float[np.ndarray, " d_x"] | None, RowStatus, str]
"""The outcome of a row: x, or None if there is none, its status, and the reason if it failed."""


def calls(simulator: Caller, work: Work, singly: frozenset[int] = frozenset()) -> Iterator[Call]:
    """The calls that simulate the rows of `work`; a call that starts at a row in `singly` is split into single rows."""
    size = simulator.calls_of
    for first in range(work.start // size * size, work.stop, size):
        if size > 1 and first in singly:
            yield from (Call(row, 1) for row in range(max(first, work.start), min(first + size, work.stop)))
        else:
            yield Call(first, size)


def make(simulator: Caller, work: Work, call: Call) -> list[Row]:
    """Make one call; if it fails, simulate its rows one by one. Rows outside of `work` are left out."""
    low, high = max(call.first, work.start), min(call.first + call.size, work.stop)
    at = call.first - work.offset
    try:
        x = simulator.numbered(work.seed, call.first, work.theta[at : at + call.size])
    except (Exception, SystemExit) as error:
        if call.size == 1:
            return [(None, RowStatus.RAISED, _shortened(f"{type(error).__name__}: {error}"))]
        return [row for one in range(low, high) for row in make(simulator, work, Call(one, 1))]
    return [(row, RowStatus.VALID, "") for row in x[low - call.first : high - call.first]]


def gathered(start: int, rows: list[Row]) -> Outcome:
    """The outcome of the rows from `start` on, as arrays. Rows with NaN or infinite values count as failed."""
    made = [i for i, (x, _, _) in enumerate(rows) if x is not None]
    widths = {len(rows[i][0]): start + i for i in reversed(made)}  # pyright: ignore[reportArgumentType]
    if len(widths) > 1:
        raise width_error(widths)
    x = np.full((len(rows), next(iter(widths), 0)), np.nan)
    if made:
        x[made] = np.array([rows[i][0] for i in made])
    status = np.full(len(rows), RowStatus.VALID, dtype=np.uint8)
    reasons = {}
    for i in np.flatnonzero(~np.isfinite(x).all(axis=1)) if made else range(len(rows)):
        _, status[i], reasons[start + int(i)] = rows[i]
        if status[i] == RowStatus.VALID:
            status[i], reasons[start + int(i)] = RowStatus.NOT_FINITE, _shortened(f"returned {x[i].tolist()}")
    return Outcome(start, x, status, reasons)


def evaluate(simulator: Caller, work: Work) -> Outcome:
    """Simulate the rows of `work` in this process."""
    return gathered(work.start, [row for call in calls(simulator, work) for row in make(simulator, work, call)])


def width_error(widths: dict[int, int]) -> InputError:
    """The error for a simulator whose rows have different widths; `widths` maps each width to a row that has it."""
    said = " and ".join(f"{width} in row {row}" for width, row in sorted(widths.items(), key=lambda item: item[1]))
    return InputError(f"`simulator` must return the same number of values every time; got {said}.")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
