"""Finished repeats on disk: a JSON file and a file of arrays for each, so that a run can be resumed."""

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
    """A finished repeat: scores, calibration traces, and the machine."""

    seed: int
    rows: tuple[Row, ...]
    traces: tuple[Trace, ...]
    machine: dict[str, Any]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "StoredRepeat":
        """Read a repeat from the JSON document of `Store.save`."""
        rows = tuple(map(Row.from_json, document["rows"]))
        return cls(document["seed"], rows, tuple(map(Trace.from_json, document["traces"])), document["machine"])

    def as_json(self) -> dict[str, Any]:
        """The content of the JSON file, without the settings of the experiment."""
        return {
            "seed": self.seed,
            "version": __version__,
            "machine": self.machine,
            "rows": [row.as_json() for row in self.rows],
            "traces": [trace.as_json() for trace in self.traces],
        }


class _OtherSettings(InputError):
    """Raised for an intact repeat of another experiment."""


class Store:
    """The repeats of one experiment, in a subfolder of `folder`."""

    def __init__(self, folder: Path, experiment: Experiment):
        self.folder = folder / f"{experiment.name}-{experiment.preset}"
        self.settings = experiment.as_json()

    def save(self, result: RepeatResult) -> StoredRepeat:
        """Save a repeat: first its arrays, then the JSON file that marks it as finished."""
        repeat = StoredRepeat(result.seed, tuple(result.rows), tuple(result.traces), facts())
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **result.arrays)
        write_bytes(self._path(result.seed, "npz"), buffer.getvalue())
        document = self.settings | repeat.as_json() | {"arrays_sha256": _digest(buffer.getvalue())}
        document |= {"sha256": _digest_of(document)}
        write_text(self._path(result.seed, "json"), json.dumps(document, indent=1) + "\n")
        return repeat

    def load(self, seed: int) -> StoredRepeat | None:
        """Load the finished repeat with this seed, or None; raises an error if it was run with other settings.

        A repeat whose files are damaged or were changed counts as not finished, with a warning.
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
        """Raise an error for a repeat of another version, or of an experiment with other settings."""
        expected = json.loads(json.dumps(self.settings)) | {"version": __version__}
        if different := [name for name in expected if name in document and document[name] != expected[name]]:
            raise _OtherSettings(
                f"{path} was run with other {', '.join(different)}. Choose another --out, or leave --resume out to "
                "replace it."
            )

    def arrays(self, seed: int) -> dict[str, np.ndarray]:
        """Load draws and observations of a finished repeat; see `RepeatResult.arrays`."""
        with np.load(self._path(seed, "npz"), allow_pickle=False) as file:
            return dict(file)

    def _path(self, seed: int, ending: str) -> Path:
        return self.folder / f"seed-{seed}.{ending}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(document: dict[str, Any]) -> str:
    """Checksum of the JSON content of `document`. It detects damage and edits, but is not a signature."""
    return _digest(json.dumps(json.loads(json.dumps(document))).encode())
