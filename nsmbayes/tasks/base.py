"""The interface of a task. A new task is one file that builds one `Task`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from tqdm.auto import tqdm

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision, sheltered
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.priors import GaussianPrior
from nsmbayes.simulators import JaxSimulator, Simulator

NONE = "none"
# Simulations and observations with the same seed must use different random numbers.
_SIMULATION_STREAM, _OBSERVATION_STREAM, _CONTAMINATION_STREAM = range(3)


class Observation(NamedTuple):
    """Observations, and the ground truth that only a benchmark knows."""

    x: Float[np.ndarray, "n d_x"]
    """The observations after contamination: all that inference may use."""
    clean: Float[np.ndarray, "n d_x"]
    """The same observations before contamination."""
    is_outlier: Bool[np.ndarray, " n"]
    """Which rows were contaminated."""


class SimulateMany(Protocol):
    """Draw one observation per row of theta."""

    def __call__(
        self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"], *, progress: bool = False
    ) -> Float[np.ndarray, "m d_x"]:
        """Row i of the result depends only on `keys[i]` and `theta[i]`, up to rounding, not on the other rows.

        Build it with `all_at_once` or `in_chunks`. `progress` shows a progress bar for slow simulators.
        """
        ...


class Contaminate(Protocol):
    """Replace a fraction of the clean observations."""

    def __call__(
        self,
        clean: Float[np.ndarray, "n d_x"],
        keys: Key[Array, " n"],
        *,
        fraction: float,
        rng: np.random.Generator,
    ) -> tuple[Float[np.ndarray, "n d_x"], Bool[np.ndarray, " n"]]:
        """Contaminate `clean`; return the observations and a mask of the contaminated rows.

        `keys[i]` is the key that simulated `clean[i]`. A contamination of something that x does not contain, such as
        the epidemic behind its summaries, uses this key to repeat the simulation.
        """
        ...


class Contamination(NamedTuple):
    """A way to contaminate observations, and the default fraction of outliers."""

    contaminate: Contaminate
    fraction: float


@dataclass(frozen=True, eq=False)
class Task:
    """A benchmark problem whose true parameters are known.

    Args:
        name: the name that `nsmbayes.tasks.get` uses.
        prior: the prior over theta, in its unconstrained space.
        theta_true: the true parameters, at which data are observed, shape (d_theta,).
        parameter_names: one name per parameter.
        x_names: one name per column of x.
        simulate_many: draws one observation for each key and row of theta.
        contaminations: the contaminations by name; the first is the default, and "none" is always included.
        grid_steps: the grid step of each column of x, 0 for a continuous column; None if all columns are continuous.
            Values on a grid have no density, so a method may add uniform noise of one step to simulations and
            observations. The simulator itself does not.
        simulate_one: draws ONE observation from a key and a theta, if such a function exists that JAX can trace.
        differentiable: whether the derivative of `simulate_one` with respect to theta is meaningful.
        log_prob: the exact log likelihood of ONE observation x, as a function of theta and x that JAX can trace, if it
            is known; call it with 64-bit floats.
    """

    name: str
    prior: GaussianPrior
    theta_true: Float[np.ndarray, " d_theta"]
    parameter_names: tuple[str, ...]
    x_names: tuple[str, ...]
    simulate_many: SimulateMany = field(repr=False)
    contaminations: Mapping[str, Contamination] = field(repr=False)
    grid_steps: tuple[float, ...] | None = None
    simulate_one: Callable[[Key[Array, ""], Float[Array, " d_theta"]], Float[Array, " d_x"]] | None = field(
        default=None, repr=False
    )
    differentiable: bool = False
    log_prob: Callable[[Float[Array, " d_theta"], Float[Array, " d_x"]], Float[Array, ""]] | None = field(
        default=None, repr=False
    )

    def __post_init__(self):
        # Tasks are shared objects, so they must be read-only.
        theta_true = checks.vector(self.theta_true, "theta_true", length=len(self.parameter_names)).copy()
        theta_true.setflags(write=False)
        object.__setattr__(self, "theta_true", theta_true)
        known = dict(self.contaminations) | {NONE: Contamination(_leave_alone, fraction=0.0)}
        object.__setattr__(self, "contaminations", MappingProxyType(known))
        if self.grid_steps is not None:
            steps = checks.vector(self.grid_steps, "grid_steps", length=len(self.x_names))
            if (steps < 0).any():
                raise InputError(f"`grid_steps` must contain steps of at least 0; got {self.grid_steps}.")
            object.__setattr__(self, "grid_steps", tuple(steps.tolist()))

    @property
    def default_contamination(self) -> str:
        """The contamination that `observe` uses by default."""
        return next(iter(self.contaminations))

    def as_simulator(self) -> Simulator:
        """The task as a simulator of one observation per row of theta, for methods that call the simulator."""
        if self.simulate_one is None:
            return _TaskSimulator(self.simulate_many)
        return JaxSimulator(self.simulate_one, differentiable=self.differentiable)

    @sheltered
    def simulate(
        self, m: int, *, seed: int, progress: bool = True
    ) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        """`m` pairs (theta, x): theta from the prior, and one x per theta.

        With `progress`, a progress bar appears after two seconds.

        Example:
            >>> from nsmbayes import tasks
            >>> theta, x = tasks.get("gnk").simulate(5, seed=0)
            >>> theta.shape, x.shape
            ((5, 4), (5, 1))
        """
        theta = self.prior.sample((checks.integer(m, "m", at_least=1),), seed)
        return theta, self.simulator(theta, seed=seed, progress=progress)

    @double_precision
    def simulator(self, theta: Any, *, seed: int, progress: bool = True) -> Float[np.ndarray, "m d_x"]:
        """One draw of x per row of `theta`."""
        theta = checks.matrix(theta, "theta", width=self.prior.dim, width_is="parameters")
        progress = checks.flag(progress, "progress")
        return self.simulate_many(simulation_keys(len(theta), seed), theta, progress=progress)

    @double_precision
    def observe(
        self, n: int, *, seed: int, contamination: str | None = None, fraction: float | None = None
    ) -> Observation:
        """`n` observations at the true parameters, some of them contaminated.

        The clean points depend only on `n` and `seed`, not on the contamination.

        Args:
            n: number of observations.
            seed: an integer.
            contamination: one of the names in `contaminations`; the first one by default.
            fraction: the fraction of contaminated rows, in [0, 1); by default that of the contamination.

        Example:
            >>> from nsmbayes import tasks
            >>> obs = tasks.get("gnk").observe(100, seed=1)
            >>> obs.x.shape, int(obs.is_outlier.sum())
            ((100, 1), 10)
        """
        n = checks.integer(n, "n", at_least=1)
        kind = self.default_contamination if contamination is None else contamination
        kind = checks.choice(kind, "contamination", tuple(self.contaminations))
        if fraction is not None:
            fraction = checks.fraction(fraction, "fraction")
        keys = observation_keys(n, seed)
        clean = self.simulate_many(keys, np.tile(self.theta_true, (n, 1)))
        if kind == NONE and fraction:
            raise InputError(f"`fraction` is {fraction} but `contamination` is 'none': leave one of them out.")
        contaminate, usual_fraction = self.contaminations[kind]
        fraction = usual_fraction if fraction is None else fraction
        x, is_outlier = contaminate(clean, keys, fraction=fraction, rng=contamination_rng(seed))
        return Observation(x=x, clean=clean, is_outlier=is_outlier)


def _leave_alone(
    clean: Float[np.ndarray, "n d_x"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n d_x"], Bool[np.ndarray, " n"]]:
    """The contamination "none"."""
    del keys, fraction, rng
    return clean.copy(), np.zeros(len(clean), dtype=bool)


class _TaskSimulator(Simulator):
    """The simulator of a task without a traceable function for one observation."""

    def __init__(self, simulate_many: SimulateMany):
        self._simulate_many = simulate_many

    @double_precision
    def rows(self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"]) -> Float[np.ndarray, "m d_x"]:
        """One observation per row; row i depends only on `keys[i]` and `theta[i]`."""
        return self._simulate_many(keys, np.asarray(theta))

    def identity(self) -> tuple[SimulateMany]:
        """The function that simulates, for the fingerprint of a campaign."""
        return (self._simulate_many,)


def all_at_once(
    simulate_one: Callable[[Key[Array, ""], Float[Array, " d_theta"]], Float[Array, " d_x"]],
) -> SimulateMany:
    """Vectorise a simulator of ONE observation that JAX can trace. Every number of rows needs its own compilation."""
    vectorised = jax.jit(jax.vmap(simulate_one))

    def simulate_many(keys, theta, *, progress=False):
        del progress
        return np.array(vectorised(keys, theta))

    return simulate_many


def in_chunks(simulate_rows: Callable[[Key[Array, " size"], Any, Any], Any], *, size: int) -> Callable[..., Any]:
    """Run a simulator of `size` rows on any number of rows, chunk by chunk.

    Only one chunk is in memory at a time, and one compilation serves any number of rows. The last chunk is padded with
    copies of its first row.

    Args:
        simulate_rows: `(keys, theta, wanted) -> arrays` with one row per row of theta, made of functions that are
            compiled with `jax.jit`. Rows that are not `wanted` are discarded, so the function may skip them.
        size: rows per chunk.
    """

    def simulate_many(keys, theta, *, progress=False):
        m, chunks = len(theta), []
        # The delay keeps the bar hidden for fast simulators.
        with tqdm(total=m, desc="simulating", unit="rows", disable=not progress, delay=2.0) as bar:
            for start in range(0, m, size):
                rows = np.arange(start, start + size)
                wanted = rows < m
                rows = np.where(wanted, rows, start)
                used = int(wanted.sum())
                result = simulate_rows(keys[rows], theta[rows], wanted)
                chunks.append(jax.tree.map(lambda array, used=used: np.asarray(array)[:used], result))
                bar.update(used)
        return jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)

    return simulate_many


def simulation_keys(m: int, seed: int) -> Key[Array, " m"]:
    """The keys of `Task.simulator`, one per row: with them a task's own functions can show the full simulation."""
    return jax.random.split(random_key(seed, _SIMULATION_STREAM), m)


def observation_keys(n: int, seed: int) -> Key[Array, " n"]:
    """The keys of `Task.observe`, one per row."""
    return jax.random.split(random_key(seed, _OBSERVATION_STREAM), n)


def contamination_rng(seed: int) -> np.random.Generator:
    """The generator that `Task.observe` passes to a contamination."""
    return np.random.default_rng((_CONTAMINATION_STREAM, checks.integer(seed, "seed")))
