"""What a task is. A new task is one file that builds one `Task`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from tqdm import tqdm

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes._seeds import random_key
from nsmbayes.priors import GaussianPrior

NONE = "none"
# Simulations and observations made with the same seed must not share their noise.
_SIMULATION_STREAM, _OBSERVATION_STREAM, _CONTAMINATION_STREAM = range(3)


class Observation(NamedTuple):
    """What was observed, and what only a benchmark knows about it."""

    x: Float[np.ndarray, "n d_x"]
    """The observations after contamination: all that inference may see."""
    clean: Float[np.ndarray, "n d_x"]
    """The same observations before contamination."""
    is_outlier: Bool[np.ndarray, " n"]
    """Which rows the contamination touched."""


class SimulateMany(Protocol):
    """Draw one observation for each row of theta."""

    def __call__(
        self, keys: Key[Array, " m"], theta: Float[np.ndarray, "m d_theta"], *, progress: bool = False
    ) -> Float[np.ndarray, "m d_x"]:
        """Row i of the result depends on `keys[i]` and `theta[i]` alone, up to rounding, whatever the other rows are.

        Build it with `all_at_once` or `in_chunks`. `progress` shows a bar where there is something to wait for.
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
        """Contaminate `clean`.

        `keys[i]` is the key that simulated `clean[i]`: a contamination of something unseen in x, such as the
        epidemic behind its summaries, replays the simulation with it.
        """
        ...


class Contamination(NamedTuple):
    """A way to contaminate, and how much of it when nothing else is said."""

    contaminate: Contaminate
    fraction: float


@dataclass(frozen=True, eq=False)
class Task:
    """A benchmark problem whose true parameters are known.

    Args:
        name: what `nsmbayes.tasks.get` calls it.
        prior: the prior over theta, in its unconstrained space.
        theta_true: the parameters behind the observations, shape (d_theta,).
        parameter_names: one name per parameter.
        x_names: one name per observed number.
        simulate_many: draws one observation for each of many keys and parameters.
        kinds: the contaminations by name; the first is the default.
        lattice: the step of each column of x whose values are whole multiples of one, 0 for a continuous column;
            None if all of them are continuous. A density cannot be fitted to a lattice, so a method may want to
            spread simulations and observations over one step. The simulator itself does not.
        simulate_one: draws ONE observation from a key and a theta, if there is such a function that JAX can trace.
        differentiable: whether the derivative of `simulate_one` with respect to theta means something.
        log_prob: the exact log likelihood of ONE observation x, as a function of theta and x that JAX can trace, if it
            is known; to be called with 64-bit floats.
    """

    name: str
    prior: GaussianPrior
    theta_true: Float[np.ndarray, " d_theta"]
    parameter_names: tuple[str, ...]
    x_names: tuple[str, ...]
    simulate_many: SimulateMany = field(repr=False)
    kinds: Mapping[str, Contamination] = field(repr=False)
    lattice: tuple[float, ...] | None = None
    simulate_one: Callable[[Key[Array, ""], Float[Array, " d_theta"]], Float[Array, " d_x"]] | None = field(
        default=None, repr=False
    )
    differentiable: bool = False
    log_prob: Callable[[Float[Array, " d_theta"], Float[Array, " d_x"]], Float[Array, ""]] | None = field(
        default=None, repr=False
    )

    def __post_init__(self):
        # Tasks are shared between all their users, so nobody may write into them.
        theta_true = _checks.vector(self.theta_true, "theta_true", length=len(self.parameter_names)).copy()
        theta_true.setflags(write=False)
        object.__setattr__(self, "theta_true", theta_true)
        object.__setattr__(self, "kinds", MappingProxyType(dict(self.kinds)))
        if self.lattice is not None:
            steps = _checks.vector(self.lattice, "lattice", length=len(self.x_names))
            if (steps < 0).any():
                raise InputError(f"`lattice` must hold steps of at least 0; got {self.lattice}.")
            object.__setattr__(self, "lattice", tuple(steps.tolist()))

    @property
    def contaminations(self) -> tuple[str, ...]:
        """The names that `observe` accepts as `contamination`; the first is its default."""
        return (*self.kinds, NONE)

    def simulate(
        self, m: int, *, seed: int, progress: bool = True
    ) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        """`m` pairs (theta, x) with theta from the prior and one x for each.

        A bar appears after two seconds if `progress` is left on.

        Example:
            >>> from nsmbayes import tasks
            >>> theta, x = tasks.get("gnk").simulate(5, seed=0)
            >>> theta.shape, x.shape
            ((5, 4), (5, 1))
        """
        theta = self.prior.sample((_checks.integer(m, "m", at_least=1),), seed)
        return theta, self.simulator(theta, seed=seed, progress=progress)

    @double_precision
    def simulator(self, theta: Any, *, seed: int, progress: bool = True) -> Float[np.ndarray, "m d_x"]:
        """One draw of x for each row of `theta`."""
        theta = _checks.matrix(theta, "theta", width=self.prior.dim, width_is="parameters")
        progress = _checks.flag(progress, "progress")
        return self.simulate_many(simulation_keys(len(theta), seed), theta, progress=progress)

    @double_precision
    def observe(
        self, n: int, *, seed: int, contamination: str | None = None, fraction: float | None = None
    ) -> Observation:
        """`n` observations at the true parameters, some of them contaminated.

        The clean points depend on `n` and `seed` only, whatever the contamination.

        Args:
            n: how many.
            seed: a whole number.
            contamination: one of `self.contaminations`; the first of them by default.
            fraction: the share of contaminated rows, in [0, 1); the contamination's own by default.

        Example:
            >>> from nsmbayes import tasks
            >>> obs = tasks.get("gnk").observe(100, seed=1)
            >>> obs.x.shape, int(obs.is_outlier.sum())
            ((100, 1), 10)
        """
        n = _checks.integer(n, "n", at_least=1)
        kind = self.contaminations[0] if contamination is None else contamination
        kind = _checks.choice(kind, "contamination", self.contaminations)
        if fraction is not None:
            fraction = _checks.fraction(fraction, "fraction")
        keys = observation_keys(n, seed)
        clean = self.simulate_many(keys, np.tile(self.theta_true, (n, 1)))
        if kind == NONE:
            if fraction:
                raise InputError(f"`fraction` is {fraction} but `contamination` is 'none': leave one of them out.")
            return Observation(x=clean.copy(), clean=clean, is_outlier=np.zeros(n, dtype=bool))
        contaminate, usual_fraction = self.kinds[kind]
        fraction = usual_fraction if fraction is None else fraction
        x, is_outlier = contaminate(clean, keys, fraction=fraction, rng=contamination_rng(seed))
        return Observation(x=x, clean=clean, is_outlier=is_outlier)


def all_at_once(
    simulate_one: Callable[[Key[Array, ""], Float[Array, " d_theta"]], Float[Array, " d_x"]],
) -> SimulateMany:
    """Vectorise a simulator of ONE observation that JAX can trace. Compiled anew for every number of rows."""
    vectorised = jax.jit(jax.vmap(simulate_one))

    def simulate_many(keys, theta, *, progress=False):
        del progress
        return np.array(vectorised(keys, theta))

    return simulate_many


def in_chunks(simulate_rows: Callable[[Key[Array, " size"], Any, Any], Any], *, size: int) -> Callable[..., Any]:
    """Run a simulator of `size` rows on any number of them, chunk by chunk.

    What needs memory is a chunk, and one compilation serves any number of rows. The last chunk is filled up with
    copies of its first row.

    Args:
        simulate_rows: `(keys, theta, wanted) -> arrays` with one row for each row of theta, made of functions that
            are compiled with `jax.jit`. Rows that are not `wanted` are thrown away, so it may leave them out.
        size: rows in a chunk.
    """

    def simulate_many(keys, theta, *, progress=False):
        m, chunks = len(theta), []
        # A fast simulator is done before the bar would show.
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
    """The keys behind `Task.simulator`, one a row: with them a task's own functions show what was simulated."""
    return jax.random.split(random_key(seed, _SIMULATION_STREAM), m)


def observation_keys(n: int, seed: int) -> Key[Array, " n"]:
    """The keys behind `Task.observe`, one a row."""
    return jax.random.split(random_key(seed, _OBSERVATION_STREAM), n)


def contamination_rng(seed: int) -> np.random.Generator:
    """The generator that `Task.observe` hands to a contamination."""
    return np.random.default_rng((_CONTAMINATION_STREAM, _checks.integer(seed, "seed")))
