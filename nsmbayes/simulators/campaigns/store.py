"""Campaigns on disk: a Zarr 3 group that `zarr` and `xarray` can also open.

The arrays have one row per simulation: `theta`, `x`, `status` (a `RowStatus`) and `reason` (UTF-8 text, padded with
zeros). A batch of rows is one chunk of each array, with a checksum. Every file is written under a temporary name and
renamed, the chunk of `status` last: a batch is either complete, or its rows are pending. Written rows never change.
"""

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from nsmbayes._internal.files import write_text
from nsmbayes.calls import Outcome, RowStatus
from nsmbayes.errors import InputError

FORMAT = 1
_REASON = 256  # bytes
_LOCK, _RUN = "status/run.lock", "status/run.json"  # in the folder of an array, which readers of the group do not list


class Rows(NamedTuple):
    """Some rows of a campaign."""

    theta: Float[np.ndarray, "rows d_theta"]
    x: Float[np.ndarray, "rows d_x"]
    status: UInt8[np.ndarray, " rows"]


class Store:
    """The arrays and attributes of a campaign."""

    def __init__(self, path: str | Path, *, writable: bool = False):
        import zarr

        self.path = Path(path)
        if not (self.path / "zarr.json").is_file():
            raise InputError(f"`{path}` is not a campaign. Write one with nsmbayes.simulate(..., out={str(path)!r}).")
        try:
            self._group = zarr.open_group(self.path, mode="r+" if writable else "r", zarr_format=3)
            self.attributes: dict[str, Any] = dict(self._group.attrs["nsmbayes"])  # pyright: ignore
            self._arrays: dict[str, Any] = {name: self._group[name] for name in ("theta", "x", "status", "reason")}
        except (KeyError, TypeError) as error:
            raise InputError(f"`{path}` is a Zarr group, but not a campaign: it lacks {error}.") from None
        if self.attributes["format"] != FORMAT:
            raise InputError(
                f"`{path}` has format {self.attributes['format']}, and this version knows {FORMAT}. Update nsmbayes."
            )

    @property
    def m(self) -> int:
        """Number of rows, simulated or not."""
        return self._arrays["status"].shape[0]

    @property
    def d_theta(self) -> int:
        """Number of parameters."""
        return self._arrays["theta"].shape[1]

    @property
    def d_x(self) -> int:
        """Number of columns of an observation."""
        return self._arrays["x"].shape[1]

    @property
    def batch(self) -> int:
        """Number of rows that are written together."""
        return self._arrays["status"].chunks[0]

    # --- reading ---

    def status(self, start: int = 0, stop: int | None = None) -> UInt8[np.ndarray, " rows"]:
        """The `RowStatus` of rows `start` to `stop`."""
        return self._read("status", start, self.m if stop is None else stop)

    def rows(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop`; an error if a valid row is damaged."""
        rows = Rows(*(self._read(name, start, stop) for name in Rows._fields))
        lost = (rows.status == RowStatus.VALID) & ~(
            np.isfinite(rows.theta).all(axis=1) & np.isfinite(rows.x).all(axis=1)
        )
        if lost.any():
            raise self._damage(start + int(lost.argmax()), "a file is missing")
        return rows

    def reasons(self, start: int, stop: int) -> list[str]:
        """The reasons why rows failed; empty strings for rows that did not fail."""
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in self._read("reason", start, stop)]

    def batches(self) -> Iterator[tuple[int, int]]:
        """First row and end of every batch."""
        return ((start, min(start + self.batch, self.m)) for start in range(0, self.m, self.batch))

    def _read(self, name: str, start: int, stop: int) -> np.ndarray:
        try:
            return np.asarray(self._arrays[name][start:stop])
        except (ValueError, OSError, RuntimeError) as error:
            for low in range(start // self.batch * self.batch, stop, self.batch):  # find the damaged batch
                try:
                    self._arrays[name][low : low + self.batch]
                except (ValueError, OSError, RuntimeError):
                    raise self._damage(low, str(error)) from error
            raise

    def _damage(self, row: int, why: str) -> InputError:
        batch = row // self.batch
        return InputError(
            f"`{self.path}` is damaged in rows {batch * self.batch} to {min((batch + 1) * self.batch, self.m) - 1} "
            f"({why}). Delete {self.path / 'status' / 'c' / str(batch)} and simulate again: these rows are made anew."
        )

    # --- writing ---

    def commit(self, theta: Float[np.ndarray, "rows d_theta"], outcome: Outcome) -> None:
        """Write rows; all of them become visible with the last write, that of their status."""
        rows = slice(outcome.start, outcome.start + len(theta))
        self._arrays["theta"][rows] = theta
        self._arrays["x"][rows] = outcome.x if outcome.x.shape[1] else np.full((len(theta), self.d_x), np.nan)
        if outcome.reasons:
            text = np.zeros((len(theta), _REASON), dtype=np.uint8)
            for row, reason in outcome.reasons.items():
                coded = np.frombuffer(reason.encode()[:_REASON], dtype=np.uint8)
                text[row - outcome.start, : len(coded)] = coded
            self._arrays["reason"][rows] = text
        self._arrays["status"][rows] = outcome.status

    def extend(self, m: int) -> None:
        """Extend the arrays to `m` rows."""
        for array in self._arrays.values():  # the status defines the number of rows
            if array.shape[0] < m:
                array.resize((m, *array.shape[1:]))

    def set_run(self, **facts: Any) -> None:
        """Store facts about the current run."""
        write_text(self.path / _RUN, json.dumps(facts) + "\n")

    def run(self) -> dict[str, Any]:
        """The stored facts about the last run."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.path / _RUN).read_text())
        return {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """A lock that lets only one process write here. It is released when the process ends, for whatever reason."""
        file = (self.path / _LOCK).open("a")
        try:
            if not _lock(file):
                run = self.run()
                raise InputError(
                    f"Process {run.get('pid')} on {run.get('host')} is simulating into `{self.path}`. Wait for it, or "
                    "choose another `out`."
                )
            for partial in self.path.rglob("*.partial"):  # from a process that was killed while writing
                partial.unlink(missing_ok=True)
            yield
        finally:
            file.close()

    def is_locked(self) -> bool:
        """Whether a process is writing here."""
        with contextlib.suppress(FileNotFoundError), (self.path / _LOCK).open("r") as file:
            return not _lock(file)
        return False


def _lock(file: Any) -> bool:
    """Lock an open file and return True, unless another process has locked it; closing the file unlocks it."""
    try:
        import fcntl
    except ImportError:  # Windows: without a lock
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def create(
    path: str | Path, *, m: int, d_theta: int, d_x: int, batch: int, parameter_names: tuple[str, ...], **facts: Any
) -> Store:
    """Create a new campaign without simulated rows; its folder appears only when it is complete."""
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*.new"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = path.parent / f".{path.name}.{os.getpid()}.new"
    attributes = {"nsmbayes": {"format": FORMAT, "parameter_names": list(parameter_names), **facts}}
    group = zarr.create_group(scratch, attributes=attributes, zarr_format=3)
    kinds = {
        "theta": ((d_theta,), "float64", float("nan"), ("row", "parameter")),
        "x": ((d_x,), "float64", float("nan"), ("row", "column")),
        "reason": ((_REASON,), "uint8", 0, ("row", "byte")),
        "status": ((), "uint8", 0, ("row",)),
    }
    for name, (shape, kind, fill, dimensions) in kinds.items():
        small = [ZstdCodec(level=1)] if kind == "uint8" else []
        group.create_array(
            name,
            shape=(m, *shape),
            chunks=(batch, *shape),
            dtype=kind,
            fill_value=fill,
            dimension_names=dimensions,
            compressors=[*small, Crc32cCodec()],
            attributes={"meaning": {status.name: int(status) for status in RowStatus}} if name == "status" else None,
        )
    os.rename(scratch, path)
    return Store(path, writable=True)


def run_facts(done: int) -> dict[str, Any]:
    """The facts about a run that are known when it starts."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time(), "rows_before": done}
