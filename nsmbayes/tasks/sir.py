"""A stochastic epidemic among N people, observed through its reported cases.

At every step of dt = 1, `Binomial(S, 1 - exp(-transmission I / N))` of the S susceptible people are infected and
`Binomial(I, 1 - exp(-recovery))` of the I infectious people recover. The new cases are reported with Poisson noise,
`y ~ Poisson(reporting x new cases)`. Only three summaries of y_1, ..., y_T are observed: the attack rate, the time of
the peak and its height. Inference uses theta = (log transmission, log recovery, logit reporting, log initially
infectious).

The number of initially infectious people is the rounded value from theta, at least 1 and at most N. The paper does not
specify this.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks.base import Contamination, Task, contamination_rng, in_chunks, observation_keys, simulation_keys
from nsmbayes.tasks.contamination import binomial_thinning, cauchy_noise
from nsmbayes.tasks.counts import binomial, poisson

N = 1000
"""Number of people."""
T = 150
"""Number of steps, which is also the number of reports."""
RETENTION = 0.5
"""The fraction of cases that an undercounted epidemic keeps."""

_UNDERCOUNTED = 0.05
# At this rate, everybody is infected or recovers within one step.
_FASTEST = 1e6
_CHUNK = 512


class Epidemic(NamedTuple):
    """One epidemic, or many, one per row."""

    susceptible: Int[Array | np.ndarray, "*epidemics 151"]
    """Number of people not infected so far, at the times 0, ..., T."""
    infectious: Int[Array | np.ndarray, "*epidemics 151"]
    """Number of people who can infect others."""
    recovered: Int[Array | np.ndarray, "*epidemics 151"]
    """Number of people who have recovered."""
    reported: Int[Array | np.ndarray, "*epidemics 150"]
    """Reports y_1, ..., y_T of the new cases in each step."""


class ObservedReports(NamedTuple):
    """The reports whose summaries `Task.observe` returns."""

    reported: Int[np.ndarray, "n 150"]
    """The reports after undercounting."""
    clean: Int[np.ndarray, "n 150"]
    """The reports before undercounting."""
    is_outlier: Bool[np.ndarray, " n"]
    """Which epidemics are undercounted."""


def epidemic(key: Key[Array, ""], theta: Float[Array, "4"]) -> Epidemic:
    """ONE epidemic."""
    transmission, recovery = jnp.minimum(jnp.exp(theta[:2]), _FASTEST)
    reporting = jax.nn.sigmoid(theta[2])
    infectious = jnp.clip(jnp.round(jnp.exp(theta[3])), 1, N)

    def step(state, u):
        susceptible, infectious = state
        infected = binomial(u[0], susceptible, transmission * infectious / N)
        recovered = binomial(u[1], infectious, recovery)
        state = susceptible - infected, infectious + infected - recovered
        return state, (*state, poisson(u[2], reporting * infected))

    start = N - infectious, infectious
    _, (*states, reported) = jax.lax.scan(step, start, jax.random.uniform(key, (T, 3)))
    S, I = (jnp.append(first, later).astype(int) for first, later in zip(start, states, strict=True))  # noqa: E741
    return Epidemic(susceptible=S, infectious=I, recovered=N - S - I, reported=reported.astype(int))


def summaries(reported: Int[Array, "150"]) -> Float[Array, "3"]:
    """Attack rate `sum_t y_t / N`, peak time `argmax_t y_t / (T - 1)` with t = 1, ..., T, peak height `max_t y_t / N`.

    If several peaks have the same height, the first one counts. All three are multiples of a step, see
    `SIR.grid_steps`.
    """
    peak = jnp.argmax(reported)
    return jnp.stack([reported.sum() / N, (peak + 1) / (T - 1), reported[peak] / N])


def simulate_one(key: Key[Array, ""], theta: Float[Array, "4"]) -> Float[Array, "3"]:
    """The summaries of one epidemic."""
    return summaries(jnp.asarray(epidemic(key, theta).reported))


_summaries = jax.jit(jax.vmap(summaries))
_epidemic_rows = jax.jit(jax.vmap(epidemic))
_epidemics = in_chunks(lambda keys, theta, _: _epidemic_rows(keys, theta), size=_CHUNK)
_simulate = in_chunks(lambda keys, theta, _: _summaries(_epidemic_rows(keys, theta).reported), size=_CHUNK)


@double_precision
def epidemics(theta: Any, *, seed: int) -> Epidemic:
    """The epidemics whose summaries `Task.simulator` returns for the same theta and seed.

    Example:
        >>> from nsmbayes.tasks import sir
        >>> shown = sir.epidemics(sir.SIR.theta_true[None], seed=0)
        >>> shown.infectious.shape, shown.reported.shape
        ((1, 151), (1, 150))
    """
    theta = checks.matrix(theta, "theta", width=4, width_is="parameters")
    return _epidemics(simulation_keys(len(theta), seed), theta)


@double_precision
def observed_reports(n: int, *, seed: int, fraction: float = _UNDERCOUNTED) -> ObservedReports:
    """The reports whose summaries `Task.observe` returns for the same n, seed and fraction.

    Example:
        >>> from nsmbayes.tasks import sir
        >>> observed = sir.observed_reports(100, seed=1)
        >>> observed.reported.shape, int(observed.is_outlier.sum())
        ((100, 150), 5)
    """
    n = checks.integer(n, "n", at_least=1)
    return _undercounted(observation_keys(n, seed), fraction=fraction, rng=contamination_rng(seed))


def _undercounted(keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator) -> ObservedReports:
    clean = _epidemics(keys, np.tile(SIR.theta_true, (len(keys), 1))).reported
    reported, is_outlier = binomial_thinning(clean, fraction=fraction, retention=RETENTION, rng=rng)
    return ObservedReports(reported=reported, clean=clean, is_outlier=is_outlier)


def undercounting(
    clean: Float[np.ndarray, "n 3"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 3"], Bool[np.ndarray, " n"]]:
    """The paper's one-sided outliers: every case of the epidemic is lost with probability 1/2."""
    reported, _, is_outlier = _undercounted(keys, fraction=fraction, rng=rng)
    return np.where(is_outlier[:, None], np.asarray(_summaries(reported)), clean), is_outlier


def heavy_tailed(
    clean: Float[np.ndarray, "n 3"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 3"], Bool[np.ndarray, " n"]]:
    """The paper's other outliers: standard Cauchy noise on every summary. The paper does not give a scale."""
    del keys
    return cauchy_noise(clean, fraction=fraction, scale=1.0, rng=rng)


SIR = Task(
    name="sir",
    prior=GaussianPrior(mean=[np.log(0.5), np.log(0.2), 0.0, np.log(20.0)], covariance=[0.5**2, 0.5**2, 1.0, 0.7**2]),
    theta_true=np.array([np.log(0.6), np.log(0.15), np.log(0.6 / 0.4), np.log(20.0)]),
    parameter_names=("log transmission", "log recovery", "logit reporting", "log initially infectious"),
    x_names=("attack rate", "peak time", "peak height"),
    simulate_many=_simulate,
    contaminations={
        "undercounting": Contamination(undercounting, fraction=_UNDERCOUNTED),
        "heavy-tailed": Contamination(heavy_tailed, fraction=0.1),
    },
    grid_steps=(1 / N, 1 / (T - 1), 1 / N),
    simulate_one=simulate_one,
)
