"""De Bruijn's identity: with w = 1 and many noise levels, NSM-Bayes is NLE."""

from dataclasses import replace

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.experiments.identity import (
    difference,
    exact_gaussian,
    gaussian_grid,
    grid_posterior,
    nle_loss,
    unweighted_loss,
)
from nsmbayes.surrogates import Density

TASK = nsm.tasks.get("gaussian")
X = TASK.observe(100, seed=1, contamination="none").x
GRID = gaussian_grid(X)
MANY = tuple(np.geomspace(0.02, 50, 25).tolist())
SIMULATIONS = TASK.simulate(5_000, seed=0)


def _method(density, noise_levels, **options):
    method = nsm.NSMBayes(
        TASK.prior, weight=nsm.weights.Constant(), noise_levels=noise_levels, calibration=None, **options
    )
    return method.append_simulations(*SIMULATIONS).adopt(density)


@pytest.fixture(scope="module", params=["exact", "network"])
def density(request) -> Density:
    if request.param == "exact":
        return exact_gaussian()
    nle = nsm.NLE(TASK.prior).append_simulations(*SIMULATIONS)
    return nle.train(0, settings=replace(nle.default_training(1), max_epochs=10), progress=False).density


def _recovered(found):
    low, high = found.covariance_ratios
    return found.mean_sds < 0.1 and low > 0.9 and high < 1.1


@pytest.mark.parametrize("levels", [MANY, nsm.NSMBayes(TASK.prior).noise_levels], ids=["many", "default"])
def test_posterior_is_that_of_nle(density, levels):
    nle = grid_posterior(nle_loss(density, X), TASK.prior, GRID)
    nsm_bayes = grid_posterior(unweighted_loss(_method(density, levels), X), TASK.prior, GRID)
    found = difference(nsm_bayes, nle)
    print(found)
    assert _recovered(found)


def test_loss_is_the_likelihood_up_to_a_constant():
    # Over three standard errors around the minimum the likelihood changes by 11; what is left of it is below a
    # twentieth, at every theta.
    nle = grid_posterior(nle_loss(exact_gaussian(), X), TASK.prior, GRID)
    ours = grid_posterior(unweighted_loss(_method(exact_gaussian(), MANY), X), TASK.prior, GRID)
    near = (np.abs((GRID - nle.mean) / np.sqrt(np.diag(nle.covariance))) < 3).all(axis=1)
    assert np.ptp(nle.losses[near]) > 8
    assert np.ptp((ours.losses - nle.losses)[near]) < 0.05


@pytest.mark.parametrize("levels", [(0.0,), tuple(np.geomspace(0.5, 2, 8).tolist())], ids=["paper's", "narrow"])
def test_too_few_levels_are_noticed(levels):
    nle = grid_posterior(nle_loss(exact_gaussian(), X), TASK.prior, GRID)
    ours = grid_posterior(unweighted_loss(_method(exact_gaussian(), levels), X), TASK.prior, GRID)
    assert not _recovered(difference(ours, nle))


def test_grid_is_the_exact_posterior_of_the_mean():
    # With sigma known the posterior is Gaussian. A narrow prior makes it known.
    prior = nsm.GaussianPrior([0.0, 0.5], [9.0, 1e-6])
    grid = gaussian_grid(X, points=201)
    grid[:, 1] = 0.5 + (grid[:, 1] - np.log(X.std())) * 5e-3 * np.sqrt(2)
    found = grid_posterior(nle_loss(exact_gaussian(), X), prior, grid)
    precision = 1 / 9 + 100 / np.exp(1.0)
    assert found.mean[0] == pytest.approx(X.sum() / np.exp(1.0) / precision, rel=1e-4)
    assert found.covariance[0, 0] == pytest.approx(1 / precision, rel=1e-3)


def test_sampled_posteriors_agree():
    # The sampler's 10,000 draws are worth more than 5,000. Means then differ by 0.02 standard deviations, and variances
    # by 3 %, so that a false alarm needs more than three standard errors: one pair of seeds in 500.
    options = {"draws": 2500}
    robust = _method(exact_gaussian(), MANY, **options).build_posterior(X, seed=0)
    nle = nsm.NLE(TASK.prior, **options).append_simulations(*SIMULATIONS).adopt(exact_gaussian())
    exact = nle.build_posterior(X, seed=1)
    assert _recovered(difference(robust, exact))
    assert not _recovered(difference(robust, nle.build_posterior(X[:80], seed=1)))
