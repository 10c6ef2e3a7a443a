"""Experiments as data: task, observations, methods, number of simulations."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nsmbayes import tasks
from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.experiments.oracle import has_oracle
from nsmbayes.experiments.outliers import KINDS, place_outliers
from nsmbayes.methods import METHODS
from nsmbayes.serialisation import check_fields, decode, encode
from nsmbayes.tasks import Observation, Task

PRESETS = ("default", "paper")
AXES = {
    "fraction": "share of outliers",
    "distance": "distance of the outliers, in robust scales",
    "n": "observations n",
    "zeta": "ζ of the weight",
    "m": "simulations m",
}
"""Quantities that a sweep can vary, with axis labels."""
_RENAMED = {"levels": "noise_levels", "lattice": "grid_steps", "reach": "cutoff_radius"}


@dataclass(frozen=True)
class DataSpec:
    """Specification of the observations.

    Args:
        contamination: one of the task's, "none", or one of `outliers.KINDS`; by default the task's first contamination.
        fraction: fraction of contaminated observations; by default that of the contamination.
        distance: distance of placed outliers (`outliers.KINDS`), in robust scales.
        n: number of observations.
    """

    contamination: str | None = None
    fraction: float | None = None
    distance: float | None = None
    n: int = 100

    def observe(self, task: Task, seed: int) -> Observation:
        """Simulate the observations of one repeat. Clean observations depend only on n and the seed."""
        if self.contamination not in KINDS:
            if self.distance is not None:
                raise InputError(f"`distance` is for outliers that are placed ({', '.join(KINDS)}) only.")
            return task.observe(self.n, seed=seed, contamination=self.contamination, fraction=self.fraction)
        clean = task.observe(self.n, seed=seed, contamination=tasks.NONE).clean
        fraction = 0.1 if self.fraction is None else self.fraction
        return place_outliers(clean, self.contamination, fraction=fraction, distance=self.distance, seed=seed)

    def named(self, task: Task) -> "DataSpec":
        """Return the specification with the name of the task's default contamination filled in."""
        return self if self.contamination is not None else replace(self, contamination=task.default_contamination)


@dataclass(frozen=True)
class MethodSpec:
    """Specification of a method in an experiment.

    Args:
        method: name of the method on the command line.
        label: label of its rows; by default the name of the method.
        options: arguments of its constructor, in addition to those of the preset.
        beta: the learning rate; by default it is calibrated.
        m: number of simulations; by default that of the experiment.
    """

    method: str
    label: str = ""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    beta: float | None = None
    m: int | None = None

    def __post_init__(self):
        checks.choice(self.method, "methods", tuple(METHODS))
        object.__setattr__(self, "label", self.label or self.method)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "MethodSpec":
        """Read a specification that `as_json` wrote, in this version or an older one."""
        check_fields(document, cls, "A method of an experiment")
        options = {name: decode(value) for name, value in current_names(document["options"]).items()}
        return cls(**{**document, "options": options})

    def as_json(self) -> dict[str, Any]:
        """Convert to a plain dictionary."""
        return {
            "label": self.label,
            "method": self.method,
            "options": {name: encode(value) for name, value in self.options.items()},
            "beta": self.beta,
            "m": self.m,
        }


@dataclass(frozen=True)
class Experiment:
    """Specification of an experiment: every method is run on all data sets, in several repeats.

    Args:
        name: name of the experiment for `nsmbayes reproduce`.
        title: a description in one line.
        task: name of the task.
        methods: the methods.
        data: the data sets.
        m: number of simulations for each method.
        preset: "default", or "paper" for the paper's settings.
        repeats: number of repeats, each with new data.
        repeats_per_network: number of repeats that share simulations and networks; amortised methods do not need new
            ones for new data.
        draws: draws from each posterior.
        axis: quantity that a sweep varies: "fraction", "distance" or "n" of its data, "zeta" or "m" of its methods.
        table: kind of table for its rows, one of `tables.TABLES`.
        method_properties: whether its table also says which methods are amortised and which are proven to be robust.
        figures: names of its figures, from `figures.FIGURES`.
    """

    name: str
    title: str
    task: str
    methods: tuple[MethodSpec, ...]
    data: tuple[DataSpec, ...] = (DataSpec(),)
    m: int = 100_000
    preset: str = "default"
    repeats: int = 20
    repeats_per_network: int = 1
    draws: int = 500
    axis: str = ""
    table: str = "scores"
    method_properties: bool = False
    figures: tuple[str, ...] = ()

    def __post_init__(self):
        checks.choice(self.preset, "preset", PRESETS)
        checks.choice(self.axis, "axis", ("", *AXES))
        for name in ("m", "repeats", "repeats_per_network", "draws"):
            checks.integer(getattr(self, name), name, at_least=1)
        for data in self.data:
            checks.integer(data.n, "n", at_least=1)
        labels = [method.label for method in self.methods]
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"`methods` must be one or more, each of them once; got {labels}.")
        task = tasks.get(self.task)
        named = tuple(data.named(task) for data in self.data)
        for data in named:
            checks.choice(data.contamination, "contamination", (*task.contaminations, *KINDS))
        object.__setattr__(self, "data", named)

    @property
    def exact_reference(self) -> bool:
        """Whether posteriors are compared with the exact posterior given clean data; the paper compares with NLE."""
        return self.preset == "default" and has_oracle(tasks.get(self.task))

    def seeds(self, seed: int) -> range:
        """The seeds of the repeats; `seed` is that of the first repeat."""
        return range(seed, seed + self.repeats)

    def groups(self, seed: int) -> list[range]:
        """The seeds of the repeats, grouped by the network that they share."""
        seeds, size = self.seeds(seed), self.repeats_per_network
        return [seeds[start : start + size] for start in range(0, self.repeats, size)]

    def only(self, labels: tuple[str, ...]) -> "Experiment":
        """Return the experiment with only these methods; methods it does not have are added with default options."""
        known = {method.label: method for method in self.methods}
        return replace(self, methods=tuple(known.get(label) or MethodSpec(label) for label in labels))

    def as_json(self) -> dict[str, Any]:
        """All settings that determine the numbers of a repeat, except its seed."""
        return {
            "experiment": self.name,
            "task": self.task,
            "preset": self.preset,
            "simulations": self.m,
            "share": self.repeats_per_network,
            "draws": self.draws,
            "data": [asdict(data) for data in self.data],
            "methods": [method.as_json() for method in self.methods],
        }

    def with_settings(self, document: Mapping[str, Any]) -> "Experiment":
        """Return the experiment with the settings in `document`, which `as_json` wrote; methods and data can differ."""
        return replace(
            self,
            name=document["experiment"],
            task=document["task"],
            preset=document["preset"],
            m=document["simulations"],
            repeats_per_network=document["share"],
            draws=document["draws"],
            data=tuple(DataSpec(**data) for data in document["data"]),
            methods=tuple(MethodSpec.from_json(method) for method in document["methods"]),
        )


def current_names(value: Any) -> Any:
    """Replace the names of options in JSON settings of older versions by the current names.

    Example:
        >>> current_names({"options": {"levels": [0.0]}})
        {'options': {'noise_levels': [0.0]}}
    """
    if isinstance(value, list):
        return [current_names(entry) for entry in value]
    if isinstance(value, Mapping):
        return {_RENAMED.get(name, name): current_names(entry) for name, entry in value.items()}
    return value
