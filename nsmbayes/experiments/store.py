"""Finished repeats on disk: one JSON file and one file of arrays each, so that a run can be taken up again."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from nsmbayes import __version__
from nsmbayes._checks import InputError
from nsmbayes._files import write_bytes, write_text
from nsmbayes.experiments.description import Experiment
from nsmbayes.experiments.machine import facts
from nsmbayes.experiments.repeat import Result


class Store:
    """The repeats of one experiment, in a folder of its own below `folder`."""

    def __init__(self, folder: Path, experiment: Experiment):
        self.folder = folder / f"{experiment.name}-{experiment.preset}"
        self.settings = experiment.as_json()

    def save(self, result: Result) -> dict[str, Any]:
        """Keep a repeat: its arrays first, then the JSON that says it is finished. Returns the latter."""
        document = self.settings | {
            "seed": result.seed,
            "version": __version__,
            "machine": facts(),
            "rows": [row.as_json() for row in result.rows],
            "traces": result.traces,
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **result.arrays)
        write_bytes(self._path(result.seed, "npz"), buffer.getvalue())
        write_text(self._path(result.seed, "json"), json.dumps(document, indent=1) + "\n")
        return document

    def load(self, seed: int) -> dict[str, Any] | None:
        """The finished repeat with this seed, if there is one; an error if it was run with other settings."""
        path = self._path(seed, "json")
        if not path.exists():
            return None
        try:
            document = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise InputError(f"{path} is damaged. Delete it, and the repeat will be run again.") from None
        settings = json.loads(json.dumps(self.settings))
        if different := [name for name in settings if document.get(name) != settings[name]]:
            raise InputError(
                f"{path} was run with other {', '.join(different)}. Choose another --out, or leave --resume out to "
                "replace it."
            )
        return document

    def arrays(self, seed: int) -> dict[str, np.ndarray]:
        """Draws and observations of a finished repeat; see `Result.arrays`."""
        with np.load(self._path(seed, "npz"), allow_pickle=False) as file:
            return dict(file)

    def _path(self, seed: int, ending: str) -> Path:
        return self.folder / f"seed-{seed}.{ending}"
