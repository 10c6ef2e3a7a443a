import dataclasses

import numpy as np
import pytest
from scipy import stats

from nsmbayes import tasks
from nsmbayes._checks import InputError
from nsmbayes.experiments.oracle import oracle_posterior

TASK = tasks.get("gnk")


def test_finds_the_truth_on_clean_points_only():
    # The prior alone has a mean squared error of 11.3.
    def mse(draws):
        return ((draws - TASK.theta_true) ** 2).sum(axis=1).mean()

    observations = [TASK.observe(100, seed=seed) for seed in (1, 2, 3)]
    draws = [oracle_posterior(TASK, obs.clean, draws=500, seed=0) for obs in observations]
    errors = [mse(d) for d in draws]
    print("oracle mean squared errors:", np.round(errors, 2))
    assert all(0.1 < error < 1.2 for error in errors)
    for d in draws:
        assert d.shape == (500, 4)
        residual = TASK.theta_true - d.mean(axis=0)
        # Beyond the 0.9999 quantile in one dataset out of 10,000, roughly.
        assert residual @ np.linalg.solve(np.cov(d.T), residual) < stats.chi2(4).ppf(0.9999)
    assert mse(oracle_posterior(TASK, observations[0].x, draws=500, seed=0)) > 3


def test_refuses_bad_input():
    with pytest.raises(InputError, match="`task` 'other'"):
        oracle_posterior(dataclasses.replace(TASK, name="other"), np.zeros((10, 1)), draws=10, seed=0)
    with pytest.raises(InputError, match="`clean_x`"):
        oracle_posterior(TASK, np.zeros((10, 2)), draws=10, seed=0)
    with pytest.raises(InputError, match="`draws`"):
        oracle_posterior(TASK, np.zeros((10, 1)), draws=0, seed=0)
    with pytest.raises(InputError, match="`seed`"):
        oracle_posterior(TASK, np.zeros((10, 1)), draws=10, seed=-1)
