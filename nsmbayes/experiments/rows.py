"""Rows, the unit of all tables and figures: the scores of one method on one data set; and helpers to read columns."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from nsmbayes.errors import InputError
from nsmbayes.methods import METHODS
from nsmbayes.serialisation import check_fields
from nsmbayes.tasks import NONE

Record = TypeVar("Record")
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Scores of one method on one data set. Fields that are missing in files of older versions are None.

    `fraction` is the fraction of contaminated observations, and `distance` the distance of placed outliers. `mmd2_ref`
    compares with the posterior given the data before contamination, `mmd2_oracle` with the oracle: the best posterior
    given the uncontaminated observations. `covered` is for the 95 % region.
    """

    method: str
    """The label of the method in its experiment."""
    repeat: int
    seed: int
    contamination: str
    fraction: float | None = None
    distance: float | None = None
    n: int
    simulations: int | None = None
    """Number of simulator calls."""
    mse: float
    mmd2_ref: float | None = None
    mmd2_oracle: float | None = None
    covered: bool | None = None
    covered_80: bool | None = None
    covered_50: bool | None = None
    converged: bool | None = None
    train_s: float | None = None
    infer_s: float | None = None
    compiled: bool | None = None
    """Whether infer_s includes compilation, as it does for the first posterior of its kind in a process."""
    oracle_mse: float | None = None
    reference_mse: float | None = None
    beta: float | None = None
    mean: tuple[float, ...] | None = None
    sd: tuple[float, ...] | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Row":
        """Read a row that `as_json` wrote, in this version or an older one. Unknown fields raise an error."""
        return _read(cls, document)

    def as_json(self) -> dict[str, Any]:
        """Convert to a plain dictionary."""
        return asdict(self)

    @property
    def data_name(self) -> str:
        """The kind of data in words.

        Example:
            >>> from nsmbayes.experiments import Row
            >>> data = {"contamination": "near", "fraction": 0.3, "distance": 4.0, "n": 100}
            >>> Row(method="nle", repeat=0, seed=0, mse=1.0, **data).data_name
            '30% near at 4'
        """
        if self.contamination == NONE:
            return "clean data"
        fraction = "" if self.fraction is None else f"{self.fraction:.0%} "
        return f"{fraction}{self.contamination}" + ("" if self.distance is None else f" at {self.distance:g}")

    @property
    def data_set(self) -> tuple[int, str, int]:
        """Key that identifies the data set in the experiment."""
        return self.seed, self.data_name, self.n


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The learning rates that a calibration tried, and the bootstrap coverage of each."""

    method: str
    """The label of the method in its experiment."""
    data: int
    """The number of the data in the experiment."""
    betas: tuple[float, ...]
    coverages: tuple[float, ...]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Trace":
        """Read a trace that `as_json` wrote. Unknown fields raise an error."""
        return _read(cls, document)

    def as_json(self) -> dict[str, Any]:
        """Convert to a plain dictionary."""
        return asdict(self)


def _read(kind: type[Record], document: Mapping[str, Any]) -> Record:
    """Read a dataclass from its fields in JSON, where tuples are lists."""
    name = kind.__name__.lower()
    check_fields(document, kind, f"A {name}")
    for field in fields(kind):  # pyright: ignore[reportArgumentType] (both are dataclasses)
        if field.default is MISSING and field.name not in document:
            raise InputError(f"A {name} lacks the field {field.name!r}; it has {', '.join(document)}.")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in document.items()})


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by a key, in the order in which the keys appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def column(rows: Iterable[Row], name: str) -> Float[np.ndarray, " k"]:
    """The values of a field, without rows where it is None."""
    values = (getattr(row, name) for row in rows)
    return np.array([value for value in values if value is not None], float)


def mean(rows: Iterable[Row], name: str) -> float | None:
    """The mean of a field, or None if no row has it."""
    values = column(rows, name)
    return float(values.mean()) if values.size else None


def moments(rows: Iterable[Row]) -> list[tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]]:
    """Posterior means and standard deviations of the rows that have them."""
    return [(np.array(row.mean), np.array(row.sd)) for row in rows if row.mean is not None and row.sd is not None]


def standard_error(values: Float[np.ndarray, " k"]) -> float:
    """The standard error of the mean; 0 for a single value, where it is unknown."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def without_compilation(rows: Sequence[Row]) -> Sequence[Row]:
    """Rows whose times do not include compilation, as far as recorded; all rows if every time includes it."""
    return [row for row in rows if not row.compiled] or rows


def once_per_data_set(rows: Iterable[Row]) -> list[Row]:
    """One row per data set, so that values common to all methods, such as the oracle, are counted once."""
    return [first for first, *_ in group_by(rows, lambda row: row.data_set).values()]


def display_name(label: str) -> str:
    """The name of a method in text for readers.

    Example:
        >>> display_name("nsm-bayes-conj, zeta = 2")
        'NSM-Bayes-conj, zeta = 2'
    """
    name, comma, rest = label.partition(",")
    return (METHODS[name].label if name in METHODS else name) + comma + rest
