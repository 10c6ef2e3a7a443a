"""A piece of work: some rows of a campaign, what came of them, and how they are simulated."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, UInt8

from nsmbayes.errors import InputError

_LONGEST = 200  # characters of a reason


class Caller(Protocol):
    """What can simulate numbered rows: every `nsmbayes.simulators.Simulator`, and what stands for one elsewhere."""

    calls_of: int
    """How many rows a call takes: rows 0 to calls_of - 1, the next calls_of rows, and so on."""

    def numbered(self, seed: int, first: int, theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """The rows from `first` on: `calls_of` of them, or one."""
        ...


class RowStatus(IntEnum):
    """What became of a row."""

    PENDING = 0
    VALID = 1
    RAISED = 2
    NOT_FINITE = 3
    TIMED_OUT = 4
    DIED = 5


class Work(NamedTuple):
    """Rows `start` to `stop` of a seed. `theta` may have more: it starts with row `offset`, as calls do."""

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
    """What came of the rows from `start` on. Rows that failed have NaN, or what the simulator returned."""

    start: int
    x: Float[np.ndarray, "rows d_x"]
    status: UInt8[np.ndarray, " rows"]
    reasons: dict[int, str]
    """Why rows failed, by their number."""


Row = tuple[Float[np.ndarray, " d_x"] | None, RowStatus, str]
"""What came of a row: x, if there is one, what that means, and the reason if it failed."""


def calls(simulator: Caller, work: Work, singly: frozenset[int] = frozenset()) -> Iterator[Call]:
    """The calls that make the rows of `work`; those that would start at a row of `singly` are made row by row."""
    size = simulator.calls_of
    for first in range(work.start // size * size, work.stop, size):
        if size > 1 and first in singly:
            yield from (Call(row, 1) for row in range(max(first, work.start), min(first + size, work.stop)))
        else:
            yield Call(first, size)


def make(simulator: Caller, work: Work, call: Call) -> list[Row]:
    """Make one call, and the rows of it one by one if it fails. Rows outside of `work` are left out."""
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
    """Rows from `start` on, as arrays. Rows with NaN or infinite values have failed."""
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
    """Simulate the rows of `work` here and now."""
    return gathered(work.start, [row for call in calls(simulator, work) for row in make(simulator, work, call)])


def width_error(widths: dict[int, int]) -> InputError:
    """The error of a simulator whose rows have different widths, each with a row that has it."""
    said = " and ".join(f"{width} in row {row}" for width, row in sorted(widths.items(), key=lambda item: item[1]))
    return InputError(f"`simulator` must return the same number of values every time; got {said}.")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
