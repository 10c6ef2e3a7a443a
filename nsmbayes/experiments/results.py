"""The result of an experiment: its rows by data, method and position in a sweep, and the corresponding draws."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes import tasks
from nsmbayes.errors import InputError
from nsmbayes.experiments.rows import Row, group_by
from nsmbayes.experiments.spec import Experiment, MethodSpec
from nsmbayes.experiments.store import Store, StoredRepeat
from nsmbayes.tasks import NONE, Task


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """An experiment and its rows.

    Args:
        experiment: the experiment as it was run.
        rows: one row for each method, data and repeat.
        machine: facts about the machine, see `machine.facts`.
        note: an additional note for readers.
        repeats: the stored repeats.
        store: the store with the draws.
    """

    experiment: Experiment
    rows: tuple[Row, ...]
    machine: Mapping[str, Any] | None = None
    note: str = ""
    repeats: Sequence[StoredRepeat] = ()
    store: Store | None = None

    @classmethod
    def from_repeats(
        cls, experiment: Experiment, repeats: Iterable[StoredRepeat], store: Store | None = None
    ) -> "ExperimentResult":
        """Build the result of the repeats so far, in the order of their seeds."""
        repeats = sorted(repeats, key=lambda repeat: repeat.seed)
        rows = tuple(row for repeat in repeats for row in repeat.rows)
        return cls(experiment, rows, repeats[0].machine if repeats else None, repeats=repeats, store=store)

    @classmethod
    def from_json(cls, experiment: Experiment, document: Mapping[str, Any]) -> "ExperimentResult":
        """Read the result that `nsmbayes reproduce --json` wrote; methods and data are those in the document."""
        known = (*experiment.as_json(), "machine", "note", "rows")
        if unknown := sorted(set(document) - set(known)):
            raise InputError(f"The rows of {experiment.name} come with an unknown field {unknown[0]!r}.")
        rows = tuple(map(Row.from_json, document["rows"]))
        return cls(experiment.with_settings(document), rows, document["machine"], document.get("note", ""))

    def as_json(self) -> dict[str, Any]:
        """Settings and rows in the format of `nsmbayes reproduce --json`."""
        note = {"note": self.note} if self.note else {}
        rows = [row.as_json() for row in self.rows]
        return self.experiment.as_json() | {"machine": self.machine} | note | {"rows": rows}

    @property
    def task(self) -> Task:
        """The task of the experiment."""
        return tasks.get(self.experiment.task)

    @property
    def preset(self) -> str:
        """The preset of the experiment: "default" or "paper"."""
        return self.experiment.preset

    @cached_property
    def methods(self) -> dict[str, MethodSpec]:
        """The methods by label."""
        return {method.label: method for method in self.experiment.methods}

    @cached_property
    def arrays(self) -> Callable[[int], dict[str, np.ndarray]]:
        """Draws and observations by seed; see `RepeatResult.arrays`. The last few are cached in memory."""
        assert self.store is not None
        return lru_cache(4)(self.store.arrays)

    def of(self, label: str) -> list[Row]:
        """The rows of a method."""
        return [row for row in self.rows if row.method == label]

    def method_name(self, row: Row) -> str:
        """The name of a row's method, which can differ from its label."""
        return self.methods[row.method].method

    def position(self, row: Row) -> float:
        """Position of a row on the axis of the sweep."""
        axis, method = self.experiment.axis, self.methods[row.method]
        if axis == "zeta":
            return method.options["weight"].zeta
        if axis == "m":
            return method.m or self.experiment.m
        return round(getattr(row, axis), 4)

    def panel(self, row: Row) -> str:
        """Title of the panel of a row in a sweep: the properties that differ besides the position."""
        if self.experiment.axis == "fraction":
            return ""
        if self.experiment.axis == "n":
            return "clean data" if row.contamination == NONE else row.contamination
        return replace(row, distance=None).data_name if self.experiment.axis == "distance" else row.data_name

    def sd_ratios(self, rows: Iterable[Row], to: str = "nle") -> dict[str, Float[np.ndarray, "repeats d"]]:
        """Posterior standard deviations over those of the method `to` on the same data, by method."""
        found: dict[str, list[np.ndarray]] = {}
        for same in group_by(rows, lambda row: row.data_set).values():
            sds = {self.method_name(row): np.array(row.sd) for row in same if row.sd is not None}
            for name, sd in sds.items():
                if to in sds and name != to:
                    found.setdefault(name, []).append(sd / sds[to])
        return {name: np.array(ratios) for name, ratios in found.items()}
