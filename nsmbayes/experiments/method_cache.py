"""The methods of an experiment, trained on first use."""

import time
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from nsmbayes import tasks
from nsmbayes.errors import InputError
from nsmbayes.experiments import paper
from nsmbayes.experiments.oracle import has_oracle, oracle_posterior
from nsmbayes.experiments.spec import DataSpec, Experiment, MethodSpec
from nsmbayes.methods import ACE, METHODS, NLE, SurrogateMethod
from nsmbayes.methods.baselines.sets import SetMethod
from nsmbayes.methods.baselines.simulating import SimulatingMethod
from nsmbayes.methods.likelihood import LikelihoodMethod
from nsmbayes.posteriors import Posterior
from nsmbayes.samplers import Sampler
from nsmbayes.simulators import simulate_sets
from nsmbayes.tasks import Task
from nsmbayes.training import TrainingSettings

_COMPILED: set[Hashable] = set()  # kinds of posteriors that this process has built, so that they are compiled


class Oracle(Protocol):
    """Draws from the exact posterior of a task given clean observations; see `oracle_posterior`."""

    def __call__(self, task: Task, clean_x: Any, *, draws: int, seed: int) -> Float[np.ndarray, "draws d_theta"]:
        """Return `draws` draws."""
        ...


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Settings that reduce the work for networks and draws below the methods' defaults, for trial runs.

    The effort is not stored with the repeats, so use a separate folder for trial runs.

    Args:
        training: training settings of surrogates; by default those of their methods.
        sampler: sampler of the posteriors of NLE and NSM-Bayes; by default those of these methods.
        oracle: function that samples the exact posterior.
    """

    training: TrainingSettings | None = None
    sampler: Sampler | None = None
    oracle: Oracle = oracle_posterior


class Trained(NamedTuple):
    """A trained method, and its training time in seconds."""

    method: Any
    seconds: float


class Built(NamedTuple):
    """A posterior, the time to build it in seconds, and whether this includes compilation."""

    posterior: Posterior
    seconds: float
    compiled: bool


class MethodCache:
    """Cache of trained methods: a network is trained once, and shared by all methods and data that can share it.

    Args:
        experiment: the experiment with the methods.
        seed: for simulations and networks.
        effort: settings for a trial run with less work.
        progress: whether to show progress bars.
    """

    def __init__(self, experiment: Experiment, seed: int, *, effort: Effort | None = None, progress: bool = False):
        self.experiment, self.seed, self.progress = experiment, seed, progress
        self.effort = Effort() if effort is None else effort
        self.task: Task = tasks.get(experiment.task)
        self._simulations: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._methods: dict[Hashable, Trained] = {}
        self._networks: dict[Hashable, Trained] = {}

    def reference_draws(
        self, x: Float[np.ndarray, "n d_x"], seed: int, *, exact: bool
    ) -> Float[np.ndarray, "draws d_theta"]:
        """Draw from the exact posterior given x if `exact` and the task has one, otherwise from that of NLE."""
        if exact and has_oracle(self.task):
            return self.effort.oracle(self.task, x, draws=self.experiment.draws, seed=seed)
        posterior = self.build(MethodSpec(NLE.name), DataSpec(n=len(x)), x, seed).posterior
        return posterior.sample((self.experiment.draws,), seed=seed)

    def build(self, spec: MethodSpec, data: DataSpec, x: Float[np.ndarray, "n d_x"], seed: int) -> Built:
        """Build the posterior given x."""
        method = self.trained(spec, data, x).method
        kind = (spec.method, repr(spec.options), x.shape, self.experiment.preset)
        compiled = kind not in _COMPILED
        _COMPILED.add(kind)
        options = {} if spec.beta is None else {"beta": spec.beta}
        start = time.perf_counter()
        with warnings.catch_warnings():  # convergence is stored in the row
            warnings.simplefilter("ignore", UserWarning)
            posterior = method.build_posterior(x, seed=seed, **options)
        return Built(posterior, time.perf_counter() - start, compiled)

    def trained(self, spec: MethodSpec, data: DataSpec, x: Float[np.ndarray, "n d_x"]) -> Trained:
        """Return the trained method; one without a surrogate of single observations is trained for this data set."""
        amortised = issubclass(METHODS[spec.method], SurrogateMethod)
        key = (spec.label, spec.method) if amortised else (spec.label, spec.method, data, x.tobytes())
        if key not in self._methods:
            self._methods[key] = self._surrogate_method(spec) if amortised else self._baseline(spec, x)
        return self._methods[key]

    def simulations(self, m: int) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        """Simulate one observation for each of m parameters."""
        if m not in self._simulations:
            self._simulations[m] = self.task.simulate(m, seed=self.seed, progress=self.progress)
        return self._simulations[m]

    def _surrogate_method(self, spec: MethodSpec) -> Trained:
        kind, m = METHODS[spec.method], spec.m or self.experiment.m
        build, options = kind, {"parameter_names": self.task.parameter_names}
        if self.experiment.preset == "paper":
            build, options = kind.paper, options | paper.choices(self.task.name, kind.name)
        else:
            options |= {"grid_steps": self.task.grid_steps}
        options |= spec.options
        if self.effort.sampler is not None and issubclass(kind, LikelihoodMethod):
            options |= {"sampler": self.effort.sampler}
        method = build(self.task.prior, **options)
        key = (m, *method.network_key())
        if key not in self._networks:
            start = time.perf_counter()
            method.append_simulations(*self.simulations(m))
            method.train(seed=self.seed, settings=self.effort.training, progress=self.progress)
            self._networks[key] = Trained(method, time.perf_counter() - start)
        trained, seconds = self._networks[key]
        return Trained(method if method is trained else method.adopt(trained), seconds)

    def _baseline(self, spec: MethodSpec, x: Float[np.ndarray, "n d_x"]) -> Trained:
        """Train a method that needs whole data sets, or the simulator itself."""
        kind, n, m = METHODS[spec.method], len(x), spec.m or self.experiment.m
        if self.experiment.preset == "paper" and spec.m is None:
            allowance = paper.ALLOWANCES.get(self.task.name, {}).get(kind.name)
            if allowance is None:
                raise InputError(f"`methods`: the paper does not run {kind.name} on {self.task.name}.")
        elif issubclass(kind, SetMethod):
            allowance = paper.Allowance(m, sets=m // n)
        else:
            allowance = paper.Allowance(m, options={} if spec.options else kind.options_for_budget(m, n))
        options = {"budget": allowance.budget, "parameter_names": self.task.parameter_names, **allowance.options}
        options |= spec.options
        if issubclass(kind, SimulatingMethod):
            return Trained(kind(self.task.prior, self.task, **options).train(self.seed, progress=self.progress), 0.0)
        sets = simulate_sets(self.task.prior, self.task, m=allowance.sets, n=n, seed=self.seed)
        method = kind(self.task.prior, **options).append_simulations(*sets)
        known = {"observed": x} if issubclass(kind, ACE) else {}
        start = time.perf_counter()
        method.train(self.seed, progress=self.progress, **known)
        return Trained(method, time.perf_counter() - start)
