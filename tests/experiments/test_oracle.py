import dataclasses

import numpy as np
import pytest
from scipy import stats

from nsmbayes import tasks
from nsmbayes.errors import InputError
from nsmbayes.experiments.oracle import has_oracle, oracle_posterior

pytestmark = pytest.mark.usefixtures("optimised")

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


def test_tasks_with_an_exact_likelihood():
    assert {name for name in tasks.names() if has_oracle(tasks.get(name))} == {"gnk", "gaussian", "pk"}


def test_gaussian_posterior_is_that_of_quadrature():
    # The sampler's 2000 draws are worth at least 400, so that a mean is beyond 0.25 standard deviations, or a standard
    # deviation wrong by 20 %, for one seed in 10,000. The posterior given half of the data is further away.
    task = tasks.get("gaussian")
    x = task.observe(40, seed=2).clean
    axes = np.linspace(-1, 3, 401), np.linspace(-0.3, 1.5, 401)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = stats.norm.logpdf(x[:, 0], grid[:, :1], np.exp(grid[:, 1:])).sum(axis=1) + task.prior.log_prob(grid)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)

    def disagreement(draws):
        return np.abs((draws.mean(axis=0) - mean) / sd).max() / 0.25, np.abs(draws.std(axis=0) / sd - 1).max() / 0.2

    assert max(disagreement(oracle_posterior(task, x, draws=2000, seed=0))) < 1
    assert max(disagreement(oracle_posterior(task, x[::2], draws=2000, seed=0))) > 1


def test_pk_posterior_holds_the_truth_and_knows_more_than_the_prior():
    task = tasks.get("pk")
    draws = oracle_posterior(task, task.observe(30, seed=1).clean, draws=500, seed=0)
    residual = task.theta_true - draws.mean(axis=0)
    # Beyond the 0.9999 quantile in one data set out of 10,000, roughly. The true omega and sigma are not the prior's.
    assert residual @ np.linalg.solve(np.cov(draws.T), residual) < stats.chi2(5).ppf(0.9999)
    assert (draws.std(axis=0) < 0.5 * task.prior.std).all()


def test_refuses_bad_input():
    unknown = dataclasses.replace(TASK, log_prob=None)
    assert not has_oracle(unknown)
    with pytest.raises(InputError, match="`task` 'gnk' has no exact likelihood"):
        oracle_posterior(unknown, np.zeros((10, 1)), draws=10, seed=0)
    with pytest.raises(InputError, match="`clean_x`"):
        oracle_posterior(TASK, np.zeros((10, 2)), draws=10, seed=0)
    with pytest.raises(InputError, match="`draws`"):
        oracle_posterior(TASK, np.zeros((10, 1)), draws=0, seed=0)
    with pytest.raises(InputError, match="`seed`"):
        oracle_posterior(TASK, np.zeros((10, 1)), draws=10, seed=-1)
