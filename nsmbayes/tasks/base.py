"""What a task is. A new task is one file that builds one `Task`."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
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
        simulate_one: draws ONE observation, `(key, theta) -> x` with theta (d_theta,) and x (d_x,); JAX must
            be able to trace it.
        kinds: the contaminations by name; the first is the default.
    """

    name: str
    prior: GaussianPrior
    theta_true: Float[np.ndarray, " d_theta"]
    parameter_names: tuple[str, ...]
    x_names: tuple[str, ...]
    simulate_one: Callable[[Key[Array, ""], Float[Array, " d_theta"]], Float[Array, " d_x"]] = field(repr=False)
    kinds: Mapping[str, Contamination] = field(repr=False)

    def __post_init__(self):
        # Tasks are shared between all their users, so nobody may write into them.
        theta_true = _checks.vector(self.theta_true, "theta_true", length=len(self.parameter_names)).copy()
        theta_true.setflags(write=False)
        object.__setattr__(self, "theta_true", theta_true)
        object.__setattr__(self, "kinds", MappingProxyType(dict(self.kinds)))

    @property
    def contaminations(self) -> tuple[str, ...]:
        """The names that `observe` accepts as `contamination`; the first is its default."""
        return (*self.kinds, NONE)

    @functools.cached_property
    def _simulate(self) -> Callable[..., Float[Array, "m d_x"]]:
        return jax.jit(jax.vmap(self.simulate_one))

    def simulate(self, m: int, *, seed: int) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        """`m` pairs (theta, x) with theta from the prior and one x for each.

        Example:
            >>> from nsmbayes import tasks
            >>> theta, x = tasks.get("gnk").simulate(5, seed=0)
            >>> theta.shape, x.shape
            ((5, 4), (5, 1))
        """
        theta = self.prior.sample((_checks.integer(m, "m", at_least=1),), seed)
        return theta, self.simulator(theta, seed=seed)

    @double_precision
    def simulator(self, theta: Any, *, seed: int) -> Float[np.ndarray, "m d_x"]:
        """One draw of x for each row of `theta`."""
        theta = _checks.matrix(theta, "theta", width=self.prior.dim, width_is="parameters")
        keys = jax.random.split(random_key(seed, _SIMULATION_STREAM), len(theta))
        return np.array(self._simulate(keys, theta))

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
        keys = jax.random.split(random_key(seed, _OBSERVATION_STREAM), n)
        clean = np.array(self._simulate(keys, np.tile(self.theta_true, (n, 1))))
        if kind == NONE:
            if fraction:
                raise InputError(f"`fraction` is {fraction} but `contamination` is 'none': leave one of them out.")
            return Observation(x=clean.copy(), clean=clean, is_outlier=np.zeros(n, dtype=bool))
        contaminate, usual_fraction = self.kinds[kind]
        rng = np.random.default_rng((_CONTAMINATION_STREAM, seed))
        x, is_outlier = contaminate(clean, keys, fraction=usual_fraction if fraction is None else fraction, rng=rng)
        return Observation(x=x, clean=clean, is_outlier=is_outlier)


def random_key(seed: int, stream: int = 0) -> Key[Array, ""]:
    """A JAX key for a whole number of any size; different streams of one seed are independent."""
    state = np.random.SeedSequence((stream, _checks.integer(seed, "seed"))).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(state), impl="threefry2x32")
