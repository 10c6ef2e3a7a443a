"""Data sets with known parameters to test a method: clean, and the same data sets contaminated."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.priors import unconstrained
from nsmbayes.simulators import as_simulator, sets_at
from nsmbayes.surrogates import MixtureDensity

Contaminated = Callable[[Float[np.ndarray, "n d_x"], np.random.Generator], Any]
_STREAM = 7  # stream of random numbers, different from those of other modules
_OF_SURROGATE = (
    "the method's OWN SURROGATE, for want of a simulator: this map cannot see an error of the surrogate, which is the "
    "usual reason why posteriors are wrong. Pass `simulator`"
)


class Trials(NamedTuple):
    """Parameters, a data set for each, and the source of the data sets."""

    theta: Float[np.ndarray, "k d"]
    x: Float[np.ndarray, "k n d_x"]
    source: str
    """Completes "simulated with ..."."""
    judged_by_itself: bool
    """Whether the data sets come from the method's own surrogate."""
    keys: Key[Array, " rows"] | None
    """The keys that simulated the rows, one data set after the other."""


@double_precision
def simulate_trials(
    method: Any,
    simulator: Any,
    *,
    datasets: int,
    n: int,
    seed: int,
    theta: Float[np.ndarray, "datasets d"] | None = None,
) -> Trials:
    """Simulate n observations at each parameter; parameters are drawn from the prior if `theta` is None."""
    key_theta, key_x = jax.random.split(random_key(seed, _STREAM))
    if theta is None:
        theta = np.asarray(unconstrained(method.prior).distribution.sample(key_theta, (datasets,)))
    if simulator is None:
        simulator = getattr(method, "simulator", None)
    if simulator is not None:
        named = getattr(simulator, "name", None)
        source = f"the task {named!r}" if isinstance(named, str) else "the simulator given"
        x = sets_at(as_simulator(simulator), theta, n, key_x)
        return Trials(theta, _finite(x), source, False, jax.random.split(key_x, datasets * n))
    return Trials(theta, _from_surrogate(method, theta, n, seed), _OF_SURROGATE, True, None)


def _finite(x: Float[np.ndarray, "k n d_x"]) -> Float[np.ndarray, "k n d_x"]:
    bad = np.flatnonzero(~np.isfinite(x).all(axis=(1, 2)))
    if bad.size:
        raise InputError(
            f"`simulator` gave NaN or infinite values in {bad.size} of {len(x)} data sets (first: {bad[0]}). Make it "
            "finite over the prior, e.g. by leaving failed runs out inside it."
        )
    return x


def _from_surrogate(method: Any, theta: Float[np.ndarray, "k d"], n: int, seed: int) -> Float[np.ndarray, "k n d_x"]:
    density = getattr(method, "density", None)
    if not isinstance(density, MixtureDensity):
        raise InputError(
            f"`simulator` must be given: data sets cannot be drawn from the surrogate of {method.label}. Pass the "
            "simulator that made the simulations, as nsmbayes.JaxSimulator(f), nsmbayes.NumpySimulator(f) or a task."
        )
    x = density.draw(theta, n, np.random.default_rng([_STREAM, seed]))
    steps = getattr(method, "grid_steps", None)
    if steps is None:
        return x
    grid = np.where(np.asarray(steps) > 0, steps, 1.0)
    return np.where(np.asarray(steps) > 0, grid * np.rint(x / grid), x)


def as_contamination(contamination: Any, simulator: Any, fraction: float | None) -> tuple[str, Any]:
    """Return the name of a contamination, and a function that contaminates a data set given its keys and a generator.

    `contamination` is a function (x, rng) -> x, one of a task's contaminations, or its name.
    """
    if isinstance(contamination, str):
        known = getattr(simulator, "contaminations", None)
        if known is None:
            raise InputError(
                f"`contamination` is the name {contamination!r:.60}, but `simulator` is not a task that has one of "
                "that name. Pass a function (x, rng) -> x."
            )
        name = checks.choice(contamination, "contamination", tuple(known))
        return name, _of_task(known[name], fraction)
    if hasattr(contamination, "contaminate"):
        return "contaminated", _of_task(contamination, fraction)
    if not callable(contamination):
        raise InputError(
            "`contamination` must be a function (x, rng) -> x of a data set, a contamination of a task or its name; "
            f"got {type(contamination).__name__}."
        )
    if fraction is not None:
        raise InputError("`fraction` is for contaminations of a task: a function decides that itself. Leave it out.")
    return "contaminated", _of_function(contamination)


def _of_task(contamination: Any, fraction: float | None) -> Any:
    share = contamination.fraction if fraction is None else checks.fraction(fraction, "fraction")

    def contaminate(x: np.ndarray, keys: Any, rng: np.random.Generator) -> np.ndarray:
        if keys is None:
            raise InputError("`contamination` of a task needs its simulator: pass the task as `simulator`.")
        changed, is_outlier = contamination.contaminate(x, keys, fraction=share, rng=rng)
        return np.where(is_outlier[:, None], changed, x)  # some resimulate all rows, at the task's own parameters

    return contaminate


def _of_function(function: Contaminated) -> Any:
    def contaminate(x: np.ndarray, keys: Any, rng: np.random.Generator) -> np.ndarray:
        del keys
        changed = checks.matrix(function(x.copy(), rng), "contamination(x, rng)", width=x.shape[1])
        if len(changed) != len(x):
            raise InputError(f"`contamination` must return {len(x)} rows, as many as it was given; got {len(changed)}.")
        return changed

    return contaminate


@double_precision
def contaminated_trials(trials: Trials, contaminate: Any, seed: int) -> Trials:
    """Return the same data sets, contaminated, each with its own random numbers."""
    k, n, _ = trials.x.shape
    keys = [None] * k if trials.keys is None else [trials.keys[i * n : (i + 1) * n] for i in range(k)]
    rngs = [np.random.default_rng([_STREAM, seed, i]) for i in range(k)]
    x = np.stack([contaminate(*each) for each in zip(trials.x, keys, rngs, strict=True)])
    return trials._replace(x=x)
