"""Finished repeats on disk: one JSON file and one file of arrays each, so that a run can be continued."""

import io
import json
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
from nsmbayes.experiments.spec import Experiment, current_names


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
        write_text(self._path(result.seed, "json"), json.dumps(self.settings | repeat.as_json(), indent=1) + "\n")
        return repeat

    def load(self, seed: int) -> StoredRepeat | None:
        """The finished repeat with this seed, if there is one; an error if it was run with other settings."""
        path = self._path(seed, "json")
        if not path.exists():
            return None
        try:
            document = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise InputError(f"{path} is damaged. Delete it, and the repeat will be run again.") from None
        settings = json.loads(json.dumps(self.settings))
        if different := [name for name in settings if current_names(document.get(name)) != settings[name]]:
            raise InputError(
                f"{path} was run with other {', '.join(different)}. Choose another --out, or leave --resume out to "
                "replace it."
            )
        try:
            return StoredRepeat.from_json(document)
        except (InputError, KeyError) as error:
            raise InputError(f"{path} is damaged ({error}). Delete it, and the repeat will be run again.") from None

    def arrays(self, seed: int) -> dict[str, np.ndarray]:
        """Draws and observations of a finished repeat; see `RepeatResult.arrays`."""
        with np.load(self._path(seed, "npz"), allow_pickle=False) as file:
            return dict(file)

    def _path(self, seed: int, ending: str) -> Path:
        return self.folder / f"seed-{seed}.{ending}"
