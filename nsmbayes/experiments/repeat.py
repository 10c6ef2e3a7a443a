"""One repeat of an experiment: simulate, train, observe, infer, and score every posterior."""

import time
import warnings
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes import tasks
from nsmbayes._checks import InputError
from nsmbayes.diagnostics import mmd2, mse
from nsmbayes.experiments import paper
from nsmbayes.experiments.description import Data, Entry, Experiment
from nsmbayes.experiments.oracle import has_oracle, oracle_posterior
from nsmbayes.methods import ACE, METHODS, NLE, NSMBayesConj
from nsmbayes.methods.density import DensityMethod
from nsmbayes.methods.sets import SetMethod
from nsmbayes.methods.simulating import SimulatingMethod
from nsmbayes.simulators import simulate_sets
from nsmbayes.tasks import Task

_AMORTISED = DensityMethod | NSMBayesConj


@dataclass(frozen=True)
class Row:
    """One method on one data set."""

    method: str
    repeat: int
    seed: int
    contamination: str
    fraction: float
    distance: float | None
    n: int
    simulations: int
    mse: float
    mmd2_ref: float
    mmd2_oracle: float
    covered: bool
    covered_80: bool
    covered_50: bool
    converged: bool
    train_s: float
    infer_s: float
    compiled: bool
    """Whether infer_s holds the time of compilation, as it does for the first posterior of its kind in a process."""
    oracle_mse: float
    reference_mse: float
    beta: float
    mean: list[float]
    sd: list[float]

    def as_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


class Result(NamedTuple):
    """What one repeat leaves behind."""

    seed: int
    rows: list[Row]
    traces: list[dict[str, Any]]
    """The learning rates that calibrations tried, and the coverage of each."""
    arrays: dict[str, np.ndarray]
    """Draws and observations, by the number of the data and a name: "0:nsm-bayes", "0:reference", "0:x", ..."""


def run_group(experiment: Experiment, seed: int, seeds: list[int], *, progress: bool = False) -> list[Result]:
    """The repeats with these seeds, which share their networks; `seed` is that of the experiment's first repeat.

    Networks have the seed of the first repeat that shares them, whether or not it is among `seeds`.

    oracle_mse is that of the best posterior given the observations that were left alone: the exact one where the task
    has an exact likelihood, else that of NLE. mmd2_ref compares with the posterior given the data before contamination:
    that of the preset's NLE, or for the default preset the exact one where there is one.
    """
    first = seeds[0] - (seeds[0] - seed) % experiment.share
    workshop = _Workshop(experiment, first, progress=progress)
    return [_run_repeat(experiment, workshop, own, own - seed) for own in seeds]


def _run_repeat(experiment: Experiment, workshop: "_Workshop", seed: int, repeat: int) -> Result:
    task, result = workshop.task, Result(seed, [], [], {})
    references: dict[int, np.ndarray] = {}
    for number, data in enumerate(experiment.data):
        observed = data.observe(task, seed)
        if data.n not in references:
            exact = experiment.preset == "default"
            references[data.n] = workshop.yardstick(observed.clean, seed, exact=exact)
        reference = references[data.n]
        if observed.is_outlier.any() or (has_oracle(task) and experiment.preset != "default"):
            oracle = workshop.yardstick(observed.x[~observed.is_outlier], seed, exact=True)
        else:
            oracle = reference
        kept = {"reference": reference, "oracle": oracle, **observed._asdict()}
        for entry in experiment.entries:
            posterior, infer_s, compiled = workshop.posterior(entry, data, observed.x, seed)
            method, train_s = workshop.trained(entry, data, observed.x)
            kept[entry.label] = draws = posterior.sample((experiment.draws,), seed=seed)
            result.rows.append(
                Row(
                    method=entry.label,
                    repeat=repeat,
                    seed=seed,
                    contamination=str(data.contamination),
                    fraction=float(observed.is_outlier.mean()),
                    distance=data.distance,
                    n=data.n,
                    simulations=method.simulations_used,
                    mse=posterior.mse(task.theta_true),
                    mmd2_ref=mmd2(draws, reference),
                    mmd2_oracle=mmd2(draws, oracle),
                    covered=bool(posterior.contains(task.theta_true)),
                    covered_80=bool(posterior.contains(task.theta_true, 0.8)),
                    covered_50=bool(posterior.contains(task.theta_true, 0.5)),
                    converged=posterior.converged,
                    train_s=train_s,
                    infer_s=infer_s,
                    compiled=compiled,
                    oracle_mse=mse(oracle, task.theta_true),
                    reference_mse=mse(reference, task.theta_true),
                    beta=posterior.beta,
                    mean=np.asarray(posterior.mean).tolist(),
                    sd=np.asarray(posterior.stds).tolist(),
                )
            )
            if posterior.calibration is not None:
                tried = {name: getattr(posterior.calibration, name).tolist() for name in ("betas", "coverages")}
                result.traces.append({"method": entry.label, "data": number, **tried})
        result.arrays.update({f"{number}:{name}": array for name, array in kept.items()})
    return result


class _Workshop:
    """Trained methods. What can share a network does, and a network is trained once."""

    _compiled: set[Hashable] = set()  # kinds of posteriors that this process has built  # noqa: RUF012

    def __init__(self, experiment: Experiment, seed: int, *, progress: bool):
        self.experiment, self.seed, self.progress = experiment, seed, progress
        self.task: Task = tasks.get(experiment.task)
        self._simulations: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._methods: dict[Hashable, tuple[Any, float]] = {}
        self._networks: dict[Hashable, tuple[Any, float]] = {}

    def yardstick(self, x: np.ndarray, seed: int, *, exact: bool) -> Float[np.ndarray, "draws d_theta"]:
        """Draws from the exact posterior given x, if `exact` and the task has one; else from NLE's."""
        if exact and has_oracle(self.task):
            return oracle_posterior(self.task, x, draws=self.experiment.draws, seed=seed)
        posterior, _, _ = self.posterior(Entry(NLE.name), Data(n=len(x)), x, seed)
        return posterior.sample((self.experiment.draws,), seed=seed)

    def posterior(self, entry: Entry, data: Data, x: np.ndarray, seed: int) -> tuple[Any, float, bool]:
        """The posterior given x, the seconds it took, and whether these hold compilation."""
        method, _ = self.trained(entry, data, x)
        kind = (entry.method, repr(entry.options), x.shape, self.experiment.preset)
        compiled = kind not in self._compiled
        self._compiled.add(kind)
        options = {} if entry.beta is None else {"beta": entry.beta}
        start = time.perf_counter()
        with warnings.catch_warnings():  # whether it converged is part of the row
            warnings.simplefilter("ignore", UserWarning)
            posterior = method.build_posterior(x, seed=seed, **options)
        return posterior, time.perf_counter() - start, compiled

    def trained(self, entry: Entry, data: Data, x: np.ndarray) -> tuple[Any, float]:
        """The method of an entry, and the seconds it took to train. Baselines are trained for the observations."""
        amortised = issubclass(METHODS[entry.method], _AMORTISED)
        key = (entry.label, entry.method) if amortised else (entry.label, entry.method, data, x.tobytes())
        if key not in self._methods:
            self._methods[key] = self._amortised(entry) if amortised else self._baseline(entry, x)
        return self._methods[key]

    def simulations(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """One observation for each of m parameters."""
        if m not in self._simulations:
            self._simulations[m] = self.task.simulate(m, seed=self.seed, progress=self.progress)
        return self._simulations[m]

    def _amortised(self, entry: Entry) -> tuple[Any, float]:
        kind, m = METHODS[entry.method], entry.m or self.experiment.m
        options: dict[str, Any] = {"parameter_names": self.task.parameter_names}
        if self.experiment.preset == "paper":
            method = kind.paper(self.task.prior, **(options | paper.choices(self.task.name, kind.name) | entry.options))
        else:
            method = kind(self.task.prior, **(options | {"lattice": self.task.lattice} | entry.options))
        key = (m, *method.network_key())
        if key not in self._networks:
            start = time.perf_counter()
            method.append_simulations(*self.simulations(m)).train(seed=self.seed, progress=self.progress)
            self._networks[key] = method, time.perf_counter() - start
        trained, seconds = self._networks[key]
        return (method if method is trained else method.adopt(trained)), seconds

    def _baseline(self, entry: Entry, x: np.ndarray) -> tuple[Any, float]:
        """A method that needs whole data sets, or the simulator itself, and the seconds it took to train."""
        kind, n, m = METHODS[entry.method], len(x), entry.m or self.experiment.m
        if self.experiment.preset == "paper" and entry.m is None:
            allowance = paper.ALLOWANCES.get(self.task.name, {}).get(kind.name)
            if allowance is None:
                raise InputError(f"`methods`: the paper does not run {kind.name} on {self.task.name}.")
        elif issubclass(kind, SetMethod):
            allowance = paper.Allowance(m, sets=m // n)
        else:
            allowance = paper.Allowance(m, options={} if entry.options else kind.within(m, n))
        options = {"budget": allowance.budget, "parameter_names": self.task.parameter_names, **allowance.options}
        options |= entry.options
        if issubclass(kind, SimulatingMethod):
            return kind(self.task.prior, self.task, **options).train(self.seed, progress=self.progress), 0.0
        sets = simulate_sets(self.task.prior, self.task, m=allowance.sets, n=n, seed=self.seed)
        method = kind(self.task.prior, **options).append_simulations(*sets)
        seen = {"observed": x} if issubclass(kind, ACE) else {}
        start = time.perf_counter()
        method.train(self.seed, progress=self.progress, **seen)
        return method, time.perf_counter() - start
