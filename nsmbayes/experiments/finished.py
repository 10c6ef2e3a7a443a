"""An experiment that was run: its rows by data, method and place in a sweep, and the draws behind them."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from nsmbayes import tasks
from nsmbayes.experiments.description import Experiment
from nsmbayes.experiments.store import Store
from nsmbayes.methods import METHODS
from nsmbayes.tasks import NONE, Task

Rows = list[dict[str, Any]]

AXES = {
    "fraction": "share of outliers",
    "distance": "distance of the outliers, in robust scales",
    "n": "observations n",
    "zeta": "ζ of the weight",
    "m": "simulations m",
}
"""What a sweep may vary, in words."""


@dataclass(frozen=True, eq=False)
class Finished:
    """An experiment and what came of it.

    Args:
        experiment: its description.
        document: settings and rows, as `nsmbayes reproduce --json` writes them. Methods and data are those of the
            document, which may be fewer than the description's. Rows may lack fields.
        repeats: what the store has kept of every repeat: its seed, rows and traces.
        store: where the draws are.
    """

    experiment: Experiment
    document: dict[str, Any]
    repeats: Sequence[dict[str, Any]] = ()
    store: Store | None = None

    @property
    def rows(self) -> Rows:
        """One for each method, data and repeat."""
        return self.document["rows"]

    @property
    def task(self) -> Task:
        """The task of the experiment."""
        return tasks.get(self.document["task"])

    @property
    def preset(self) -> str:
        """Whose choices were made."""
        return self.document["preset"]

    @cached_property
    def methods(self) -> dict[str, dict[str, Any]]:
        """The methods by label, as `Experiment.as_json` describes them."""
        return {method["label"]: method for method in self.document["methods"]}

    @cached_property
    def arrays(self) -> Callable[[int], dict[str, np.ndarray]]:
        """Draws and observations by seed; see `Result.arrays`. The last few are kept in memory."""
        assert self.store is not None
        return lru_cache(4)(self.store.arrays)

    def method(self, row: dict[str, Any]) -> str:
        """The name of a row's method, whatever the row is called."""
        return self.methods[row["method"]]["method"]

    def place(self, row: dict[str, Any]) -> float:
        """Where on the axis of the sweep a row is."""
        axis, method = self.experiment.axis, self.methods[row["method"]]
        if axis == "zeta":
            return method["options"]["weight"]["zeta"]
        if axis == "m":
            return method["m"] or self.document["simulations"]
        return round(row[axis], 4)

    def panel(self, row: dict[str, Any]) -> str:
        """What else a row of a sweep differs in."""
        if self.experiment.axis == "fraction":
            return ""
        if self.experiment.axis == "n":
            return "clean data" if row["contamination"] == NONE else row["contamination"]
        return about(row | {"distance": None}) if self.experiment.axis == "distance" else about(row)


def about(row: dict[str, Any]) -> str:
    """The data of a row in words.

    Example:
        >>> about({"contamination": "near", "fraction": 0.3, "distance": 4.0})
        '30% near at 4'
    """
    if row["contamination"] == NONE:
        return "clean data"
    share = "" if row.get("fraction") is None else f"{row['fraction']:.0%} "
    return f"{share}{row['contamination']}" + ("" if row.get("distance") is None else f" at {row['distance']:g}")


def shown(label: str) -> str:
    """What a reader calls a method.

    Example:
        >>> shown("nsm-bayes-conj, zeta = 2")
        'NSM-Bayes-conj, zeta = 2'
    """
    name, comma, rest = label.partition(",")
    return (METHODS[name].label if name in METHODS else name) + comma + rest


def grouped(rows: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], Hashable]) -> dict[Any, Rows]:
    """Rows by a key, in the order in which the keys appear."""
    groups: dict[Any, Rows] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def values(rows: Rows, key: str) -> np.ndarray:
    """A column, without the rows that do not have it."""
    return np.array([row[key] for row in rows if row.get(key) is not None], float)


def mean(rows: Rows, key: str) -> float | None:
    """The mean of a column, if any row has it."""
    column = values(rows, key)
    return float(column.mean()) if column.size else None


def uncompiled(rows: Rows) -> Rows:
    """Rows whose seconds hold no compilation, as far as that was noted; all of them, if each holds some."""
    return [row for row in rows if not row.get("compiled")] or rows


def standard_error(column: np.ndarray) -> float:
    """That of the mean; 0 for one value, about which nothing is known."""
    return float(column.std(ddof=1) / np.sqrt(column.size)) if column.size > 1 else 0.0


def once_a_data_set(rows: Rows) -> Rows:
    """One row for each data set: what is the same for all methods, such as the oracle, is not counted twice."""
    return [first for first, *_ in grouped(rows, lambda r: (r["seed"], about(r), r.get("n"))).values()]


def sd_ratios(finished: Finished, rows: Rows, to: str = "nle") -> dict[str, np.ndarray]:
    """Posterior standard deviations over those of the method `to` on the same data, (repeats, d) by method."""
    found: dict[str, list[np.ndarray]] = {}
    for same in grouped(rows, lambda r: (r["seed"], about(r), r.get("n"))).values():
        sds = {finished.method(row): np.array(row["sd"]) for row in same if row.get("sd") is not None}
        for name, sd in sds.items():
            if to in sds and name != to:
                found.setdefault(name, []).append(sd / sds[to])
    return {name: np.array(ratios) for name, ratios in found.items()}
