import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.samplers import require_converged, sample_nuts
from nsmbayes.samplers.chains import diagnose

MEAN = np.array([1.0, -2.0, 30.0])
COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, -3.0], [0.0, -3.0, 100.0]])
traces = 0


def _gaussian(position, data):
    global traces
    traces += 1
    residual = position - data["mean"]
    return -0.5 * residual @ data["precision"] @ residual / data["temperature"]


def _sample_gaussian(*, mean=MEAN, temperature=1.0, seed=0):
    data = {"mean": mean, "precision": np.linalg.inv(COVARIANCE), "temperature": temperature}
    start = mean + np.random.default_rng(0).normal(size=(4, 3))
    return sample_nuts(_gaussian, start, data, warmup=500, draws=1500, key=jax.random.key(seed))


def _two_modes(position, data):
    """Normal distributions around -separation and separation, without what lies below the wall."""
    separation, wall = data
    z = position.astype(jnp.float32)[0]  # as the log density of a network in single precision would be
    log_prob = jnp.logaddexp(-0.5 * (z - separation) ** 2, -0.5 * (z + separation) ** 2)
    return jnp.where(z > wall, log_prob, -jnp.inf)


def _sample_two_modes(separation, *, start, wall=-np.inf):
    return sample_nuts(
        _two_modes,
        np.array(start)[:, None],
        (separation, wall),
        warmup=200,
        draws=1000,
        key=jax.random.key(0),
    )


@pytest.fixture(scope="module")
def gaussian():
    return _sample_gaussian()


def test_shapes(gaussian):
    assert gaussian.positions.shape == (4, 1500, 3)
    assert gaussian.positions.dtype == np.float64
    assert gaussian.acceptance_rate.shape == gaussian.divergences.shape == (4,)
    assert gaussian.r_hat.shape == gaussian.ess_bulk.shape == (3,)
    assert np.array_equal(gaussian.flat, np.concatenate(list(gaussian.positions)))


def test_moments_of_a_correlated_gaussian(gaussian):
    # The three means together are off by 4 Monte Carlo errors for one key in 5,000.
    std = np.sqrt(np.diag(COVARIANCE))
    assert (np.abs(gaussian.flat.mean(axis=0) - MEAN) < 4 * std / np.sqrt(gaussian.ess_bulk)).all()
    assert np.abs((np.cov(gaussian.flat.T) - COVARIANCE) / np.outer(std, std)).max() < 0.1


def test_diagnostics_of_a_healthy_run(gaussian):
    assert require_converged(gaussian, max_r_hat=1.01) is gaussian
    assert (gaussian.ess_bulk > 1000).all()
    assert gaussian.divergences.sum() == 0
    assert (np.abs(gaussian.acceptance_rate - 0.85) < 0.13).all()


def test_same_key_same_draws(gaussian):
    assert np.array_equal(_sample_gaussian().positions, gaussian.positions)
    assert (_sample_gaussian(seed=1).positions != gaussian.positions).all()


def test_new_data_need_no_new_compilation(gaussian):
    before = traces
    other = _sample_gaussian(mean=-MEAN, temperature=4.0)
    assert traces == before
    assert np.allclose(other.flat.mean(axis=0), -MEAN, atol=4 * np.sqrt(4 * np.diag(COVARIANCE) / other.ess_bulk))
    assert other.flat.var(axis=0) == pytest.approx(4 * np.diag(COVARIANCE), rel=0.15)


def test_chains_in_different_modes_are_not_accepted():
    apart = _sample_two_modes(20.0, start=[-20.0, 20.0])
    assert apart.r_hat.shape == (1,)
    with pytest.raises(ConvergenceError, match=r"largest R-hat is \d+\.\d+"):
        require_converged(apart)
    together = _sample_two_modes(0.5, start=[-1.0, 1.0])
    assert require_converged(together).flat.var() == pytest.approx(1.25, rel=0.2)


def test_a_common_drift_is_seen(gaussian):
    # Every chain has the same mean, and yet none of them stands still.
    drift = np.linspace(0, 5, 1500)[:, None]
    assert diagnose(gaussian.positions)[0][0] < 1.01
    assert diagnose(gaussian.positions + drift)[0][0] > 1.3


def test_missing_diagnostics_are_not_accepted(gaussian):
    with pytest.raises(ConvergenceError):
        require_converged(gaussian._replace(r_hat=np.full(3, np.nan)))
    with pytest.raises(ConvergenceError, match="effective sample size 3"):
        require_converged(gaussian._replace(ess_bulk=np.full(3, 3.0)))


def test_divergences_are_counted():
    walled = _sample_two_modes(0.0, start=[1.0, 2.0], wall=0.0)
    assert (walled.divergences > 0).all()
    assert (walled.positions > 0).all()


def test_impossible_start():
    with pytest.raises(InputError, match="finite at every row"):
        _sample_two_modes(0.0, start=[1.0, -1.0], wall=0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 3}, "`draws` must be at least 4"),
        ({"warmup": 0}, "`warmup` must be at least 1"),
        ({"initial_positions": np.zeros((2, 2, 2))}, "`initial_positions` must have shape"),
    ],
)
def test_bad_arguments(arguments, message):
    usual = {"initial_positions": np.zeros((2, 2)), "warmup": 10, "draws": 10, "key": jax.random.key(0)}
    with pytest.raises(InputError, match=message):
        sample_nuts(_two_modes, data=(1.0, 0.0), **{**usual, **arguments})


def test_diagnostics_are_those_of_arviz():
    """Independent draws, a slow chain, and one chain beside the others: R-hat and both sizes within 3 %."""
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 500, 3))
    for t in range(1, 500):
        x[:, t, 1] = 0.9 * x[:, t - 1, 1] + 0.44 * x[:, t, 1]
    x[0, :, 2] += 1.5
    data = arviz.convert_to_dataset({"x": x})
    found = diagnose(x)
    np.testing.assert_allclose(found.r_hat, arviz.rhat(data)["x"], rtol=1e-3)
    np.testing.assert_allclose(found.ess_bulk, arviz.ess(data, method="bulk")["x"], rtol=0.03)
    np.testing.assert_allclose(found.ess_tail, arviz.ess(data, method="tail", prob=(0.05, 0.95))["x"], rtol=0.03)
    assert found.r_hat[2] > 1.1
    assert found.ess_bulk[1] < 300
    assert np.isnan(diagnose(np.zeros((4, 50, 1))).r_hat).all()
