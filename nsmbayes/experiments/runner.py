"""Run methods on a benchmark task, repeat after repeat, and score their posteriors."""

import functools
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.diagnostics import mmd2, mse
from nsmbayes.experiments import paper
from nsmbayes.experiments.oracle import has_oracle, oracle_posterior
from nsmbayes.methods import ACE, METHODS, NLE
from nsmbayes.methods.density import DensityMethod
from nsmbayes.methods.sets import SetMethod
from nsmbayes.methods.simulating import SimulatingMethod
from nsmbayes.simulators import simulate_sets
from nsmbayes.tasks import Task

DRAWS = 500
PRESETS = ("default", "paper")


@dataclass(frozen=True)
class Row:
    """One method on one repeat."""

    method: str
    repeat: int
    seed: int
    mse: float
    mmd2_ref: float
    covered: bool
    converged: bool
    train_s: float
    infer_s: float
    oracle_mse: float
    beta: float
    simulations: int

    def as_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


def run(
    task: Task,
    methods: tuple[str, ...],
    *,
    preset: str,
    repeats: int,
    seed: int,
    m: int,
    n: int,
    contamination: str | None = None,
    progress: bool,
) -> Iterator[Row]:
    """Rows as they are finished. Every repeat simulates, trains and observes anew, from its own seed.

    oracle_mse is that of the best posterior given the observations that were left alone: the exact one where the task
    has an exact likelihood, else that of NLE. mmd2_ref compares with the posterior given the data before contamination:
    that of the preset's NLE, or for the default preset the exact one where there is one.
    """
    m = _checks.integer(m, "m", at_least=1)
    for repeat in range(repeats):
        own = seed + repeat
        observed = task.observe(n, seed=own, contamination=contamination)
        workshop = _Workshop(task, preset, m, observed.x, seed=own, progress=progress)
        spared = observed.x[~observed.is_outlier]
        if has_oracle(task):
            oracle = oracle_posterior(task, spared, draws=DRAWS, seed=own)
        else:
            oracle, _ = workshop.draws(NLE.name, spared)
        if has_oracle(task) and preset == "default":
            reference = oracle_posterior(task, observed.clean, draws=DRAWS, seed=own)
        else:
            reference, _ = workshop.draws(NLE.name, observed.clean)
        for name in methods:
            _, train_s = workshop.trained(name)
            start = time.perf_counter()
            draws, posterior = workshop.draws(name, observed.x)
            infer_s = time.perf_counter() - start
            yield Row(
                method=name,
                repeat=repeat,
                seed=own,
                mse=posterior.mse(task.theta_true),
                mmd2_ref=mmd2(draws, reference),
                covered=bool(posterior.contains(task.theta_true)),
                converged=posterior.converged,
                train_s=train_s,
                infer_s=infer_s,
                oracle_mse=mse(oracle, task.theta_true),
                beta=posterior.beta,
                simulations=workshop.trained(name)[0].simulations_used,
            )


class _Workshop:
    """Methods with the same budget of m simulations, each surrogate trained once: NLE and NSM-Bayes share theirs."""

    def __init__(self, task: Task, preset: str, m: int, observed: np.ndarray, *, seed: int, progress: bool):
        self.task, self.preset, self.m, self.seed, self.progress = task, preset, m, seed, progress
        self.observed = observed
        self._methods: dict[str, tuple[Any, float]] = {}

    @functools.cached_property
    def simulations(self) -> tuple[np.ndarray, np.ndarray]:
        """One observation for each of m parameters."""
        return self.task.simulate(self.m, seed=self.seed, progress=self.progress)

    def trained(self, name: str) -> tuple[Any, float]:
        """The method with this name, and the seconds its surrogate took to train."""
        kind = METHODS[name]
        if name not in self._methods and issubclass(kind, SetMethod | SimulatingMethod):
            self._methods[name] = self._baseline(kind)
        elif name not in self._methods:
            make = kind.paper if self.preset == "paper" else kind
            options: dict[str, Any] = {"parameter_names": self.task.parameter_names}
            if self.preset == "default":
                options["lattice"] = self.task.lattice
            method = make(self.task.prior, **options)
            partner = next((pair for pair in self._methods.values() if isinstance(pair[0], DensityMethod)), None)
            if isinstance(method, DensityMethod) and partner is not None:
                self._methods[name] = method.adopt(partner[0]), partner[1]
            else:
                start = time.perf_counter()
                method.append_simulations(*self.simulations).train(seed=self.seed, progress=self.progress)
                self._methods[name] = method, time.perf_counter() - start
        return self._methods[name]

    def _baseline(self, kind: type[Any]) -> tuple[Any, float]:
        """A method that needs whole data sets, or the simulator itself, and the seconds it took to train."""
        n = len(self.observed)
        if self.preset == "paper":
            allowance = paper.ALLOWANCES[self.task.name].get(kind.name)
            if allowance is None:
                raise InputError(f"`methods`: the paper does not run {kind.name} on {self.task.name}.")
        elif issubclass(kind, SetMethod):
            allowance = paper.Allowance(self.m, sets=self.m // n)
        else:
            allowance = paper.Allowance(self.m, options=kind.within(self.m, n))
        options = {"budget": allowance.budget, "parameter_names": self.task.parameter_names, **allowance.options}
        if issubclass(kind, SimulatingMethod):
            return kind(self.task.prior, self.task, **options).train(self.seed, progress=self.progress), 0.0
        sets = simulate_sets(self.task.prior, self.task, m=allowance.sets, n=n, seed=self.seed)
        method = kind(self.task.prior, **options).append_simulations(*sets)
        seen = {"observed": self.observed} if issubclass(kind, ACE) else {}
        start = time.perf_counter()
        method.train(self.seed, progress=self.progress, **seen)
        return method, time.perf_counter() - start

    def draws(self, name: str, x: np.ndarray) -> tuple[Float[np.ndarray, "draws d_theta"], Any]:
        """Draws from the posterior given `x`, and the posterior."""
        with warnings.catch_warnings():  # whether it converged is part of the row
            warnings.simplefilter("ignore", UserWarning)
            posterior = self.trained(name)[0].build_posterior(x, seed=self.seed)
        return posterior.sample((DRAWS,), seed=self.seed), posterior


def summarise(rows: list[Row]) -> str:
    """A table of means and standard deviations by method."""
    lines = [f"{'method':<18}{'MSE':>16}{'MMD^2':>16}{'coverage':>10}{'train s':>9}{'infer s':>9}{'oracle MSE':>12}"]
    for name in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == name]

        def spread(values: list[float]) -> str:
            return f"{np.mean(values):.2f} ({np.std(values):.2f})"

        lines.append(
            f"{name:<18}{spread([r.mse for r in mine]):>16}{spread([r.mmd2_ref for r in mine]):>16}"
            f"{np.mean([r.covered for r in mine]):>10.0%}{np.mean([r.train_s for r in mine]):>9.1f}"
            f"{np.mean([r.infer_s for r in mine]):>9.2f}{np.mean([r.oracle_mse for r in mine]):>12.2f}"
        )
    return "\n".join(lines)
