"""Turin's model of a radio channel: what a receiver records when a signal arrives along many paths.

The transfer function is measured at K frequencies within a bandwidth B, df = B / (K - 1) apart:
`Y_k = H_k + Z_k` with noise `Z_k ~ CN(0, noise)` and `H_k = sum_l gain_l exp(-j 2 pi df k delay_l)`. The delays are a
Poisson process of a constant rate, and `gain_l ~ CN(0, B G0 exp(-delay_l / decay) / rate)`. The inverse Fourier
transform of Y is the series y(t) in the time domain, and x contains the logarithms of its temporal moments.
Inference uses theta = (log G0, log decay, log rate, log noise), in seconds and inverse seconds.

The paper does not specify three things. Its gains lack the factor B, without which the noise would hide the signal.
Here delays end at 1 / df = 200 ns: a later arrival could not be distinguished from an earlier one. The moments are sums
over the K times of the discrete transform, for which j = 0 is exact by Parseval's theorem.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Key

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks.base import Contamination, Task, contamination_rng, in_chunks, observation_keys, simulation_keys
from nsmbayes.tasks.contamination import choose_outliers

B = 4e9
"""Bandwidth in Hz."""
K = 801
"""Number of frequencies, which is also the number of times."""
DF = B / (K - 1)
"""Distance between two frequencies in Hz; y(t) is periodic with period 1 / DF seconds."""
TIMES = np.arange(K) / (K * DF)
"""The times t of the series y(t), in seconds."""
TIMES.setflags(write=False)

_FAULTY = 0.1
_MOST_ARRIVALS = 1e7
# k = 32 a + b: the powers of exp(-j 2 pi df delay) up to K need 26 + 32 numbers per arrival.
_FINE, _COARSE = 32, 26
# Arrivals come in blocks of one size, and a row has as many blocks as it needs, so its cost does not depend on the
# arrivals of other rows.
_BLOCK, _BLOCKS_AT_ONCE, _CHUNK = 256, 32, 256


class ObservedSeries(NamedTuple):
    """The series whose moments `Task.observe` returns."""

    series: Complex[np.ndarray, "n 801"]
    """The recorded series."""
    clean: Complex[np.ndarray, "n 801"]
    """The series that would have been recorded without faults."""
    is_outlier: Bool[np.ndarray, " n"]
    """Which receivers were faulty and recorded only their own noise."""


def transfer_function(delays: Float[Array, " L"], gains: Complex[Array, " L"]) -> Complex[Array, "801"]:
    """`H_k = sum_l gains_l exp(-j 2 pi df k delays_l)` for k = 0, ..., K - 1, without a table of K x L exponentials."""
    return _power_sums(_turns(delays), gains)


def _turns(delays: Float[Array, "*L"]) -> Complex[Array, "*L"]:
    """The phase factor of a delay from one frequency to the next: exp(-j 2 pi df delay)."""
    return jnp.exp(-2j * jnp.pi * DF * delays)


def _power_sums(z: Complex[Array, " L"], gains: Complex[Array, " L"]) -> Complex[Array, "801"]:
    """`sum_l gains_l z_l^k` for k = 0, ..., K - 1.

    With k = 32 a + b, the power is a product of a factor for a and a factor for b, and the sum over l is a product of
    two small matrices, (26 x L) and (L x 32).
    """
    fine, z_32 = _powers(z, jnp.ones_like(z), _FINE)
    coarse, _ = _powers(z_32, gains, _COARSE)
    return (coarse.T @ fine).reshape(-1)[:K]


def _powers(
    z: Complex[Array, " L"], first: Complex[Array, " L"], count: int
) -> tuple[Complex[Array, "L count"], Complex[Array, " L"]]:
    """`first` times z^0, ..., z^(count - 1), by repeated doubling; and z^c with c the power of two not below count."""
    powers = first[:, None]
    while powers.shape[1] < count:
        powers, z = jnp.concatenate([powers, powers * z[:, None]], axis=1), z * z
    return powers[:, :count], z


def temporal_moments(series: Complex[Array, "801"]) -> Float[Array, "3"]:
    """`x_j = log sum_t |y(t)|^2 t^j dt` for j = 0, 1, 2."""
    power = series.real**2 + series.imag**2
    return jnp.log(jnp.stack([power @ TIMES**j for j in range(3)]) * TIMES[1])


def count_arrivals(key: Key[Array, ""], theta: Float[Array, "4"]) -> Float[Array, ""]:
    """The number of arrivals of ONE simulation within 1 / df: Poisson with mean rate / df."""
    return jax.random.poisson(jax.random.fold_in(key, 0), jnp.exp(theta[2]) / DF).astype(float)


def _arrivals(
    key: Key[Array, ""], theta: Float[Array, "4"], count: Float[Array, ""]
) -> tuple[Float[Array, " L"], Complex[Array, " L"]]:
    """Delays and gains of ONE block of arrivals; the gains beyond the first `count` are zero."""
    log_G0, log_decay, log_rate, _ = theta
    delay_key, gain_key = jax.random.split(key)
    delays = jax.random.uniform(delay_key, (_BLOCK,)) / DF
    log_variance = jnp.log(B) + log_G0 - log_rate - delays * jnp.exp(-log_decay)
    gains = jnp.exp(log_variance / 2) * jax.random.normal(gain_key, (_BLOCK,), complex)
    return delays, jnp.where(jnp.arange(_BLOCK) < count, gains, 0.0)


def _signal(keys: Key[Array, " m"], theta: Float[Array, "m 4"], wanted: Bool[Array, " m"]) -> Complex[Array, "m 801"]:
    """The transfer functions of many simulations, without noise."""
    m = len(theta)
    counts = jnp.where(wanted, jax.vmap(count_arrivals)(keys, theta), 0.0)
    blocks = jnp.ceil(counts / _BLOCK).astype(int)
    ends = jnp.cumsum(blocks)
    arrival_keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)

    def add_blocks(i, H):
        """Add the next blocks, from any rows; blocks after the last one are empty."""
        number = i * _BLOCKS_AT_ONCE + jnp.arange(_BLOCKS_AT_ONCE)
        row = jnp.minimum(jnp.searchsorted(ends, number, side="right"), m - 1)
        number -= ends[row] - blocks[row]
        block_keys = jax.vmap(jax.random.fold_in)(arrival_keys[row], number)
        delays, gains = jax.vmap(_arrivals)(block_keys, theta[row], counts[row] - number * _BLOCK)
        # A loop instead of one product of all blocks: XLA would recompute every exponential for every power of it.
        return jax.lax.scan(add_block, H, (row, _turns(delays), gains))[0]

    def add_block(H, block):
        row, turns, gains = block
        return H.at[row].add(_power_sums(turns, gains)), None

    return jax.lax.fori_loop(0, -(-ends[-1] // _BLOCKS_AT_ONCE), add_blocks, jnp.zeros((m, K), complex))


def _noise(key: Key[Array, ""], theta: Float[Array, "4"]) -> Complex[Array, "801"]:
    """The noise of ONE receiver."""
    return jnp.exp(theta[3] / 2) * jax.random.normal(jax.random.fold_in(key, 2), (K,), complex)


@jax.jit
def _received_rows(keys, theta, wanted):
    return jnp.fft.ifft(_signal(keys, theta, wanted) + jax.vmap(_noise)(keys, theta))


@jax.jit
def _noise_rows(keys, theta, wanted):
    del wanted
    return jnp.fft.ifft(jax.vmap(_noise)(keys, theta))


_moments = jax.jit(jax.vmap(temporal_moments))
_received = in_chunks(_received_rows, size=_CHUNK)
_received_noise = in_chunks(_noise_rows, size=_CHUNK)
_simulate = in_chunks(lambda *rows: _moments(_received_rows(*rows)), size=_CHUNK)


def simulate_many(
    keys: Key[Array, " m"], theta: Float[np.ndarray, "m 4"], *, progress: bool = False
) -> Float[np.ndarray, "m 3"]:
    """The temporal moments of one received series for each row of theta."""
    return _simulate(keys, _affordable(theta), progress=progress)


def _affordable(theta: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "m 4"]:
    bad = np.flatnonzero(theta[:, 2] > np.log(_MOST_ARRIVALS * DF))
    if bad.size:
        raise InputError(
            f"`theta` implies more than {_MOST_ARRIVALS:,.0f} arrivals (row {checks.shown(bad)}). Keep its third "
            f"parameter, the log of the arrival rate, below {np.log(_MOST_ARRIVALS * DF):.1f}; the prior mean is 22."
        )
    return theta


@double_precision
def received(theta: Any, *, seed: int, signal: bool = True) -> Complex[np.ndarray, "m 801"]:
    """The series y(t) at `TIMES` whose moments `Task.simulator` returns for the same theta and seed.

    With `signal=False` they contain only the same noise, as if all receivers were faulty.

    Example:
        >>> from nsmbayes.tasks import radio
        >>> radio.received(radio.RADIO.theta_true[None], seed=0).shape
        (1, 801)
    """
    theta = _affordable(checks.matrix(theta, "theta", width=4, width_is="parameters"))
    run = _received if checks.flag(signal, "signal") else _received_noise
    return run(simulation_keys(len(theta), seed), theta)


def power_delay_profile(series: Any) -> Float[np.ndarray, "801"]:
    """The power |y(t)|^2 at `TIMES`, averaged over many series.

    Example:
        >>> from nsmbayes.tasks import radio
        >>> profile = radio.power_delay_profile(radio.observed_series(50, seed=1).clean)
        >>> bool(profile[1] > 100 * profile[700])
        True
    """
    series = np.asarray(series)
    if series.ndim != 2 or series.shape[1] != K or not len(series):
        raise InputError(
            f"`series` must have shape (n, {K}), one series per row; got {series.shape}. Try radio.received."
        )
    return (np.abs(series) ** 2).mean(axis=0)


@double_precision
def observed_series(n: int, *, seed: int, fraction: float = _FAULTY) -> ObservedSeries:
    """The series whose moments `Task.observe` returns for the same n, seed and fraction.

    Example:
        >>> from nsmbayes.tasks import radio
        >>> observed = radio.observed_series(20, seed=1)
        >>> observed.series.shape, int(observed.is_outlier.sum())
        ((20, 801), 2)
    """
    n = checks.integer(n, "n", at_least=1)
    keys, theta = observation_keys(n, seed), np.tile(RADIO.theta_true, (n, 1))
    is_outlier = choose_outliers(n, fraction=fraction, rng=contamination_rng(seed))
    clean = _received(keys, theta)
    series = np.where(is_outlier[:, None], _received_noise(keys, theta), clean)
    return ObservedSeries(series=series, clean=clean, is_outlier=is_outlier)


def noise_only(
    clean: Float[np.ndarray, "n 3"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 3"], Bool[np.ndarray, " n"]]:
    """The paper's outliers: faulty receivers, which record the noise of the clean series without its signal."""
    is_outlier = choose_outliers(len(clean), fraction=fraction, rng=rng)
    noise = _received_noise(keys, np.tile(RADIO.theta_true, (len(clean), 1)))
    return np.where(is_outlier[:, None], np.asarray(_moments(noise)), clean), is_outlier


RADIO = Task(
    name="radio",
    prior=GaussianPrior(mean=[-19.0, -19.0, 22.0, -22.0], covariance=[1.0, 1.0, 1.0, 1.0]),
    theta_true=np.log([4e-9, 7e-9, 5e9, 3e-10]),
    parameter_names=("log G0", "log decay", "log rate", "log noise"),
    x_names=("log m0", "log m1", "log m2"),
    simulate_many=simulate_many,
    contaminations={"noise-only": Contamination(noise_only, fraction=_FAULTY)},
)
