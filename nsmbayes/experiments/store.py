"""Finished repeats on disk: one JSON file and one file of arrays each, so that a run can be continued."""

import hashlib
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nsmbayes import __version__
from nsmbayes._internal.files import write_bytes, write_text
from nsmbayes.errors import InputError
from nsmbayes.experiments.machine import facts
from nsmbayes.experiments.repeat import RepeatResult
from nsmbayes.experiments.rows import Row, Trace
from nsmbayes.experiments.spec import Experiment


@dataclass(frozen=True)
class StoredRepeat:
    """A finished repeat: its scores, how its learning rates were found, and the machine it was run on."""

    seed: int
    rows: tuple[Row, ...]
    traces: tuple[Trace, ...]
    machine: dict[str, Any]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "StoredRepeat":
        """The repeat in the JSON file that `Store.save` wrote."""
        rows = tuple(map(Row.from_json, document["rows"]))
        return cls(document["seed"], rows, tuple(map(Trace.from_json, document["traces"])), document["machine"])

    def as_json(self) -> dict[str, Any]:
        """What the JSON file says besides the settings of the experiment."""
        return {
            "seed": self.seed,
            "version": __version__,
            "machine": self.machine,
            "rows": [row.as_json() for row in self.rows],
            "traces": [trace.as_json() for trace in self.traces],
        }


class _OtherSettings(InputError):
    """A repeat that is whole, but of another experiment."""


class Store:
    """The repeats of one experiment, in a folder of its own below `folder`."""

    def __init__(self, folder: Path, experiment: Experiment):
        self.folder = folder / f"{experiment.name}-{experiment.preset}"
        self.settings = experiment.as_json()

    def save(self, result: RepeatResult) -> StoredRepeat:
        """Keep a repeat: its arrays first, then the JSON that says it is finished."""
        repeat = StoredRepeat(result.seed, tuple(result.rows), tuple(result.traces), facts())
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **result.arrays)
        write_bytes(self._path(result.seed, "npz"), buffer.getvalue())
        document = self.settings | repeat.as_json() | {"arrays_sha256": _digest(buffer.getvalue())}
        document |= {"sha256": _digest_of(document)}
        write_text(self._path(result.seed, "json"), json.dumps(document, indent=1) + "\n")
        return repeat

    def load(self, seed: int) -> StoredRepeat | None:
        """The finished repeat with this seed, if there is one; an error if it was run with other settings.

        One that is damaged, or was changed since, counts as not finished, with a warning.
        """
        path = self._path(seed, "json")
        if not path.exists():
            return None
        try:
            document = dict(json.loads(path.read_text(encoding="utf-8")))
            self._check_settings(path, document)
            digest, damaged = document.pop("sha256"), path
            if digest == _digest_of(document):
                repeat, damaged = StoredRepeat.from_json(document), self._path(seed, "npz")
                if damaged.is_file() and _digest(damaged.read_bytes()) == document["arrays_sha256"]:
                    return repeat
        except _OtherSettings:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            damaged = path
        warnings.warn(
            f"{damaged} is damaged, lost or was changed since it was written: the repeat with seed {seed} "
            "is run again.",
            stacklevel=4,
        )
        return None

    def _check_settings(self, path: Path, document: dict[str, Any]) -> None:
        """Refuse a repeat of another version, or of an experiment with other settings."""
        expected = json.loads(json.dumps(self.settings)) | {"version": __version__}
        if different := [name for name in expected if name in document and document[name] != expected[name]]:
            raise _OtherSettings(
                f"{path} was run with other {', '.join(different)}. Choose another --out, or leave --resume out to "
                "replace it."
            )

    def arrays(self, seed: int) -> dict[str, np.ndarray]:
        """Draws and observations of a finished repeat; see `RepeatResult.arrays`."""
        with np.load(self._path(seed, "npz"), allow_pickle=False) as file:
            return dict(file)

    def _path(self, seed: int, ending: str) -> Path:
        return self.folder / f"seed-{seed}.{ending}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(document: dict[str, Any]) -> str:
    """A checksum of what JSON keeps of `document`. It finds damage and edits; it is no signature."""
    return _digest(json.dumps(json.loads(json.dumps(document))).encode())
