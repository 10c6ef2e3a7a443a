import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.moments import largest_z

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.tasks import radio

pytestmark = pytest.mark.usefixtures("optimised")

TASK = tasks.get("radio")
DF = 4e9 / 800


def _complex_normal(rng, variance):
    shape = np.shape(variance)
    return np.sqrt(variance / 2) * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))


def _plain(theta, n, rng, bug=None):
    """Moments of n series at one theta, as the paper describes them, frequency by frequency."""
    G0, decay, rate, noise = np.exp(theta)
    arrivals = rng.poisson(rate / DF, size=(n, 1))
    shape = (n, arrivals.max() + 1)
    delays = rng.uniform(0, (0.5 if bug == "half the window" else 1) / DF, size=shape)
    power = np.exp(-(2 if bug == "amplitudes decay" else 1) * delays / decay)
    component = np.where(np.arange(shape[1]) < arrivals, _complex_normal(rng, 4e9 * G0 * power / rate), 0)
    turn = np.exp(-2j * np.pi * DF * delays)
    H = np.empty((n, 801), complex)
    for k in range(801):
        H[:, k] = component.sum(axis=1)
        component *= turn
    Y = H + _complex_normal(rng, np.full((n, 801), (2 if bug == "noise in both parts" else 1) * noise))
    t = np.arange(801) / (801 * DF)
    return np.stack([np.log(np.sum(np.abs(np.fft.ifft(Y)) ** 2 * t**j, axis=1) * t[1]) for j in range(3)], axis=1)


@pytest.fixture(scope="module")
def at_twenty_settings():
    """500 simulations at 20 draws of the prior, but with 13 to 900 arrivals, which the plain simulator can afford."""
    theta = TASK.prior.sample((20,), seed=8)
    theta[:, 2] = np.linspace(18.0, 22.2, 20)
    x = TASK.simulator(np.repeat(theta, 500, axis=0), seed=3)
    return theta, x.reshape(20, 500, 3)


def test_it_is_the_paper_s_task():
    assert np.allclose(TASK.theta_true, [-19.34, -18.78, 22.33, -21.93], atol=0.005)
    assert TASK.prior.mean.tolist() == [-19.0, -19.0, 22.0, -22.0]
    assert np.array_equal(TASK.prior.covariance, np.eye(4))
    assert (radio.B, radio.K, radio.DF) == (4e9, 801, 5e6)
    assert list(TASK.contaminations) == ["noise-only", "none"]
    assert TASK.contaminations["noise-only"].fraction == 0.1
    assert TASK.grid_steps is None


# The largest of 120 z-scores, of means and variances, exceeds 6 for less than one seed in a thousand.
def test_moments_are_those_of_a_plain_simulator(at_twenty_settings):
    theta, x = at_twenty_settings
    rng = np.random.default_rng(0)
    assert max(largest_z(ours, _plain(row, 100, rng)) for row, ours in zip(theta, x, strict=True)) < 6


@pytest.mark.parametrize("bug", ["half the window", "amplitudes decay", "noise in both parts"])
def test_a_planted_bug_is_caught(at_twenty_settings, bug):
    theta, x = at_twenty_settings
    rng = np.random.default_rng(0)
    few = range(0, 14, 3)
    assert max(largest_z(x[i], _plain(theta[i], 100, rng, bug)) for i in few) > 7


@pytest.mark.parametrize("arrivals", [0, 1, 7, 300])
@double_precision
def test_transfer_function_against_the_table_of_exponentials(arrivals):
    rng = np.random.default_rng(arrivals)
    delays, gains = rng.uniform(0, 1 / DF, arrivals), _complex_normal(rng, np.ones(arrivals))
    expected = np.exp(-2j * np.pi * DF * np.outer(np.arange(801), delays)) @ gains
    H = np.asarray(radio.transfer_function(jnp.asarray(delays), jnp.asarray(gains)))
    assert np.allclose(H, expected, rtol=0, atol=1e-12 * max(arrivals, 1))


@double_precision
def test_number_of_arrivals_is_poisson():
    # Mean and variance equal rate / df; each z-score exceeds 4.5 for less than one seed in 100,000.
    log_rates, n = np.array([17.0, 22.0, 26.0]), 20_000
    theta = np.zeros((3 * n, 4))
    theta[:, 2] = np.repeat(log_rates, n)
    counts = jax.jit(jax.vmap(radio.count_arrivals))(jax.random.split(jax.random.key(1), 3 * n), theta)
    counts, mean = np.asarray(counts).reshape(3, n), np.exp(log_rates) / DF
    assert (np.abs(counts.mean(axis=1) - mean) < 4.5 * np.sqrt(mean / n)).all()
    assert (np.abs(counts.var(axis=1) / mean - 1) < 4.5 * np.sqrt((2 + 1 / mean) / n)).all()


def test_parseval_and_the_inverse_fourier_transform():
    y = radio.received(TASK.theta_true[None], seed=2)[0]
    Y = np.fft.fft(y)
    assert np.sum(np.abs(Y) ** 2) == pytest.approx(801 * np.sum(np.abs(y) ** 2), rel=1e-12)
    # y(t) = 1/K sum_k Y_k exp(j 2 pi k df t): at the times of the series, and between them for its energy.
    k = np.arange(801)
    assert np.allclose(np.exp(2j * np.pi * DF * np.outer(radio.TIMES[:5], k)) @ Y / 801, y[:5], rtol=1e-9)
    t = (np.arange(2003) + 0.3) / (2003 * DF)
    energy = np.mean(np.abs(np.exp(2j * np.pi * DF * np.outer(t, k)) @ Y / 801) ** 2) / DF
    assert np.exp(TASK.simulator(TASK.theta_true[None], seed=2)[0, 0]) == pytest.approx(energy, rel=1e-9)


def test_series_are_those_of_the_simulator():
    theta = TASK.prior.sample((300,), seed=5)
    power = np.abs(radio.received(theta, seed=6)) ** 2
    dt = radio.TIMES[1]
    expected = np.log(np.stack([(power * radio.TIMES**j).sum(axis=1) * dt for j in range(3)], axis=1))
    assert np.allclose(TASK.simulator(theta, seed=6), expected, rtol=1e-12)


def test_series_without_signal_is_the_same_noise():
    theta = TASK.theta_true[None]
    noise = radio.received(theta, seed=1, signal=False)
    no_gain = radio.received(theta - [[600.0, 0.0, 0.0, 0.0]], seed=1)
    assert np.allclose(noise, no_gain, rtol=1e-12)
    # |y|^2 averages to noise / K; the mean of 801 exponentials has a standard error of 1/28.
    assert np.mean(np.abs(noise) ** 2) * 801 == pytest.approx(np.exp(theta[0, 3]), rel=5 / 28)


def test_power_delay_profile_is_the_expected_one():
    G0, decay, _, noise = np.exp(TASK.theta_true)
    y = radio.received(np.tile(TASK.theta_true, (2000, 1)), seed=3)
    profile = radio.power_delay_profile(y)
    # E|Y_k|^2 = B G0 decay (1 - exp(-1 / (df decay))) + noise for every k.
    expected = (4e9 * G0 * decay * -np.expm1(-1 / (DF * decay)) + noise) / 801
    energy = (np.abs(y) ** 2).sum(axis=1)
    assert abs(energy.mean() - 801 * expected) < 4.5 * energy.std() / np.sqrt(len(y))
    assert profile.sum() == pytest.approx(energy.mean(), rel=1e-12)
    # It decays like exp(-t / decay) until it reaches the noise.
    early, late = profile[8:12].mean(), profile[36:40].mean()
    assert np.log(early / late) * decay == pytest.approx(28 * radio.TIMES[1], rel=0.1)


def test_faulty_receivers_record_noise():
    obs = TASK.observe(200, seed=1)
    shown = radio.observed_series(200, seed=1)
    assert obs.is_outlier.sum() == 20
    assert np.array_equal(obs.is_outlier, shown.is_outlier)
    assert np.array_equal(shown.series[~obs.is_outlier], shown.clean[~obs.is_outlier])
    assert np.array_equal(obs.x[~obs.is_outlier], obs.clean[~obs.is_outlier])
    energy = np.exp(obs.x[obs.is_outlier, 0]) * 801**2 * DF / 801
    # The mean of 20 x 801 exponentials has a relative standard error of 0.008.
    assert energy.mean() == pytest.approx(3e-10, rel=5 * 0.008)
    for series, x in ((shown.series, obs.x), (shown.clean, obs.clean)):
        assert np.allclose(np.log((np.abs(series) ** 2).sum(axis=1) * radio.TIMES[1]), x[:, 0], rtol=1e-12)


def test_a_long_row_does_not_change_its_neighbours():
    theta = np.tile(TASK.theta_true, (3, 1))
    alone = TASK.simulator(theta, seed=4)
    theta[1, 2] = 26.0
    beside = TASK.simulator(theta, seed=4)
    assert np.array_equal(alone[[0, 2]], beside[[0, 2]])
    assert not np.isclose(alone[1], beside[1]).any()


def test_bad_arguments():
    with pytest.raises(InputError, match=r"more than 10,000,000 arrivals \(row 1\).*below 31.5"):
        TASK.simulator([[-19.0, -19.0, 22.0, -22.0], [-19.0, -19.0, 40.0, -22.0]], seed=0)
    with pytest.raises(InputError, match="more than 10,000,000 arrivals"):
        radio.received([[-19.0, -19.0, 40.0, -22.0]], seed=0)
    with pytest.raises(InputError, match="`theta` must have 4 parameters"):
        radio.received(np.zeros((2, 3)), seed=0)
    with pytest.raises(InputError, match=r"`series` must have shape \(n, 801\)"):
        radio.power_delay_profile(np.zeros(801))
    with pytest.raises(InputError, match="`n` must be at least 1"):
        radio.observed_series(0, seed=0)
    with pytest.raises(InputError, match="`fraction` must lie in"):
        radio.observed_series(10, seed=0, fraction=-0.1)
