"""Experiments as data: which task, which observations, which methods, how many simulations."""

from dataclasses import dataclass, field, replace
from typing import Any

from nsmbayes import _checks, tasks
from nsmbayes._checks import InputError
from nsmbayes.experiments.outliers import KINDS, place_outliers
from nsmbayes.methods import METHODS
from nsmbayes.tasks import Observation, Task
from nsmbayes.weights import Weight

PRESETS = ("default", "paper")


@dataclass(frozen=True)
class Data:
    """What is observed.

    Args:
        contamination: one of the task's, "none", or one of `outliers.KINDS`; the task's first by default.
        fraction: share of the observations that are touched; the contamination's own by default.
        distance: of outliers that are placed (`outliers.KINDS`), in robust scales.
        n: how many observations.
    """

    contamination: str | None = None
    fraction: float | None = None
    distance: float | None = None
    n: int = 100

    def observe(self, task: Task, seed: int) -> Observation:
        """The observations of one repeat. The clean ones depend on n and the seed only."""
        if self.contamination not in KINDS:
            if self.distance is not None:
                raise InputError(f"`distance` is for outliers that are placed ({', '.join(KINDS)}) only.")
            return task.observe(self.n, seed=seed, contamination=self.contamination, fraction=self.fraction)
        clean = task.observe(self.n, seed=seed, contamination=tasks.NONE).clean
        fraction = 0.1 if self.fraction is None else self.fraction
        return place_outliers(clean, self.contamination, fraction=fraction, distance=self.distance, seed=seed)

    def named(self, task: Task) -> "Data":
        """The same with the contamination's name written out."""
        return self if self.contamination is not None else replace(self, contamination=task.contaminations[0])


@dataclass(frozen=True)
class Entry:
    """A method as it takes part in an experiment.

    Args:
        method: its name on the command line.
        label: what its rows are called; the method's name by default.
        options: arguments of its constructor, beyond those of the preset.
        beta: the learning rate; calibrated by default.
        m: simulations, if not those of the experiment.
    """

    method: str
    label: str = ""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    beta: float | None = None
    m: int | None = None

    def __post_init__(self):
        _checks.choice(self.method, "methods", tuple(METHODS))
        object.__setattr__(self, "label", self.label or self.method)


@dataclass(frozen=True)
class Experiment:
    """One table or figure: every method on all the data, repeat after repeat.

    Args:
        name: what `nsmbayes reproduce` calls it.
        title: one line about it.
        task: name of the task.
        entries: the methods.
        data: what they are given.
        m: simulations for each method.
        preset: "default", or "paper" for the paper's own choices.
        repeats: how often, each time with other data.
        share: repeats that share simulations and networks; amortised methods do not need new ones for new data.
        draws: draws from each posterior.
        axis: what a sweep varies: "fraction", "distance" or "n" of its data, "zeta" or "m" of its methods.
        table: how its rows are set out, one of `tables.TABLES`.
        figures: what is drawn of it, of `figures.FIGURES`.
    """

    name: str
    title: str
    task: str
    entries: tuple[Entry, ...]
    data: tuple[Data, ...] = (Data(),)
    m: int = 100_000
    preset: str = "default"
    repeats: int = 20
    share: int = 1
    draws: int = 500
    axis: str = ""
    table: str = "scores"
    figures: tuple[str, ...] = ()

    def __post_init__(self):
        _checks.choice(self.preset, "preset", PRESETS)
        for name in ("m", "repeats", "share", "draws"):
            _checks.integer(getattr(self, name), name, at_least=1)
        for data in self.data:
            _checks.integer(data.n, "n", at_least=1)
        labels = [entry.label for entry in self.entries]
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"`methods` must be one or more, each of them once; got {labels}.")
        kinds = (*tasks.get(self.task).contaminations, *KINDS)
        named = tuple(data.named(tasks.get(self.task)) for data in self.data)
        for data in named:
            _checks.choice(data.contamination, "contamination", kinds)
        object.__setattr__(self, "data", named)

    def seeds(self, seed: int) -> range:
        """The seeds of the repeats, if the first of them has this one."""
        return range(seed, seed + self.repeats)

    def groups(self, seed: int) -> list[range]:
        """The same, those together that share networks."""
        seeds = self.seeds(seed)
        return [seeds[start : start + self.share] for start in range(0, self.repeats, self.share)]

    def only(self, labels: tuple[str, ...]) -> "Experiment":
        """The experiment with some of its methods, or others in their default way."""
        known = {entry.label: entry for entry in self.entries}
        return replace(self, entries=tuple(known.get(label) or Entry(label) for label in labels))

    def as_json(self) -> dict[str, Any]:
        """All that the numbers of a repeat depend on besides its seed."""
        entries = [
            {
                "label": entry.label,
                "method": entry.method,
                "options": {name: _plain(value) for name, value in entry.options.items()},
                "beta": entry.beta,
                "m": entry.m,
            }
            for entry in self.entries
        ]
        return {
            "experiment": self.name,
            "task": self.task,
            "preset": self.preset,
            "simulations": self.m,
            "share": self.share,
            "draws": self.draws,
            "data": [vars(data) for data in self.data],
            "methods": entries,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Weight):
        return value.config()
    return list(value) if isinstance(value, tuple) else value
