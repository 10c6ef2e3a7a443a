import jax
import numpy as np
from scipy import stats

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision

TASK = tasks.get("gaussian")


@double_precision
def test_density_is_scipy_s():
    theta, x = TASK.prior.sample((100,), seed=0), np.linspace(-50, 50, 100)[:, None]
    expected = stats.norm(theta[:, 0], np.exp(theta[:, 1])).logpdf(x[:, 0])
    assert np.allclose(jax.vmap(TASK.log_prob)(theta, x), expected, rtol=1e-12)


def test_simulator_draws_from_it():
    # Kolmogorov-Smirnov at level 0.001: a false alarm for one seed in a thousand, and one for a theta a little wrong.
    x = TASK.simulator(np.tile(TASK.theta_true, (20_000, 1)), seed=0)[:, 0]

    def p_value(mu, log_sigma):
        return stats.kstest(x, stats.norm(mu, np.exp(log_sigma)).cdf).pvalue

    assert p_value(*TASK.theta_true) > 1e-3
    for wrong in 0.1 * np.eye(2):
        assert p_value(*(TASK.theta_true + wrong)) < 1e-3


def test_outliers_are_ten_standard_deviations_above():
    obs = TASK.observe(100, seed=1)
    assert obs.is_outlier.sum() == 10
    moved = (obs.x - obs.clean)[obs.is_outlier]
    assert np.allclose(moved, 10 * np.exp(TASK.theta_true[1]))
