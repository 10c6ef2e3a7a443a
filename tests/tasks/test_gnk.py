import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision
from nsmbayes.tasks.gnk_exact import quantile

TASK = tasks.get("gnk")


def test_it_is_the_paper_s_task():
    assert TASK.theta_true.tolist() == [1.0, 0.5, 1.0, -1.0]
    assert TASK.prior.mean.tolist() == [0.0, 0.7, 0.0, -1.5]
    assert np.diag(TASK.prior.covariance).tolist() == [5.0, 0.5, 4.0, 0.25]
    assert list(TASK.contaminations) == ["shift", "none"]


@pytest.mark.parametrize("u", [-3.0, -0.2, 0.0, 1.5])
@double_precision
def test_quantile_is_the_paper_s_formula(u):
    location, scale, skewness, tails = 0.3, 2.0, -1.7, 0.4
    ratio = (1 - np.exp(-skewness * u)) / (1 + np.exp(-skewness * u))
    expected = location + scale * (1 + 0.8 * ratio) * (1 + u**2) ** tails * u
    theta = jnp.array([location, np.log(scale), skewness, np.log(tails)])
    assert float(quantile(theta, jnp.array(u))) == pytest.approx(expected, rel=1e-14)


@double_precision
def test_quantile_increases_over_the_prior():
    theta = TASK.prior.sample((500,), seed=0)
    u = np.linspace(-6, 6, 400)
    x = jax.vmap(jax.vmap(quantile, (None, 0)), (0, None))(theta, u)
    assert np.diff(np.asarray(x), axis=1).min() > 0


@double_precision
def test_simulator_has_the_right_quartiles():
    # The share of draws below each quartile G(-0.6745), G(0), G(0.6745) has a standard error of at most
    # 0.0032, so that this raises a false alarm for less than one seed in 5,000.
    x = TASK.simulator(np.tile(TASK.theta_true, (25_000, 1)), seed=0)
    u = jnp.array([-0.6744898, 0.0, 0.6744898])
    quartiles = jax.vmap(quantile, (None, 0))(jnp.asarray(TASK.theta_true), u)
    below = (x < np.asarray(quartiles)).mean(axis=0)
    assert np.abs(below - [0.25, 0.5, 0.75]).max() < 4 * 0.0032


def test_outliers_are_fifty_below():
    obs = TASK.observe(100, seed=1)
    assert obs.is_outlier.sum() == 10
    assert np.array_equal(obs.x[obs.is_outlier], obs.clean[obs.is_outlier] - 50)
