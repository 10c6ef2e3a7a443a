"""Posteriors of observations with missing cells, against the exact one of a Gaussian problem."""

import numpy as np
import pandas as pd
import pytest
from support.effort import PriorSampler
from support.known_mixtures import LINEAR_PRIOR, linear, linear_data, linear_posterior

import nsmbayes as nsm

SHORT = {"chains": 2, "draws": 200}


def moments(posterior):
    """Mean and standard deviations by the density on a grid: without the error of draws."""
    line = np.linspace(-6, 6, 31)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    theta = posterior.mean + posterior.std * grid
    log_prob = posterior.log_prob(theta)
    weights = np.exp(log_prob - log_prob.max())
    mean = weights @ theta / weights.sum()
    return mean, np.sqrt(weights @ (theta - mean) ** 2 / weights.sum())


@pytest.fixture(scope="module")
def robust():
    """Weights by distance; those by number take longer."""
    return linear(nsm.NSMBayes(LINEAR_PRIOR, excess=None, **SHORT))


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("outliers", "excess"), [(0, False), (20, False), pytest.param(20, True, marks=pytest.mark.slow)]
)
def test_a_fifth_of_the_cells_missing(robust, outliers, excess, tmp_path):
    """Means within 0.1 and standard deviations within 5 % of those of the exact posterior of the good rows.

    With excess good rows count a little less than in full, and means are within 0.2.
    """
    x = linear_data(200, fraction=0.2, outliers=outliers, seed=1)
    method = linear(nsm.NSMBayes(LINEAR_PRIOR, **SHORT)) if excess else robust
    posterior = method.build_posterior(x, missing="marginalise", beta=1.0, seed=0)
    mean, covariance = linear_posterior(x[outliers:])
    sd = np.sqrt(np.diag(covariance))
    found, spread = moments(posterior)
    assert np.abs((found - mean) / sd).max() < (0.2 if excess else 0.1)
    assert np.abs(spread / sd - 1).max() < 0.05
    assert not outliers or posterior.weights[:outliers].max() < 0.01
    assert np.median(posterior.weights[outliers:]) > 0.9
    cells = int(np.isnan(x).sum())
    assert f"{cells} of 600 cells were not observed, and are integrated out." in posterior.summary()
    assert not posterior.certificate.robust
    loaded = nsm.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(loaded.x, x)
    np.testing.assert_array_equal(loaded.weights, posterior.weights)


@pytest.mark.usefixtures("optimised")
def test_the_likelihood_is_exact():
    x = linear_data(60, fraction=0.3, seed=2)
    posterior = linear(nsm.NLE(LINEAR_PRIOR, **SHORT)).build_posterior(x, missing="marginalise", seed=0)
    mean, covariance = linear_posterior(x)
    found, spread = moments(posterior)
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(spread, np.sqrt(np.diag(covariance)), rtol=1e-6)


def test_what_cannot_be_marginalised_is_refused(robust):
    x = linear_data(30, fraction=0.2, seed=3)
    with pytest.raises(nsm.InputError, match=r"`x` has \d+ NaN .*missing='marginalise'"):
        robust.build_posterior(x)
    with pytest.raises(nsm.InputError, match="`missing` must be one of 'marginalise'"):
        robust.build_posterior(x, missing="drop")
    for wrong, reason in [
        (np.vstack([x, np.full(3, np.nan)]), "no value at all in row 30"),
        (np.column_stack([x[:, :2], np.full(30, np.nan)]), "no value at all in column 2"),
        (np.where(np.isnan(x), np.inf, x), "infinite values"),
    ]:
        with pytest.raises(nsm.InputError, match=reason):
            robust.build_posterior(wrong, missing="marginalise")
    with pytest.raises(nsm.InputError, match="NSMBayes"):
        linear(nsm.NSMBayesAmortised(LINEAR_PRIOR)).build_posterior(x, missing="marginalise")


def test_other_methods_name_those_that_can():
    x = np.array([[1.0, 2.0], [np.nan, 1.0]])
    with pytest.raises(nsm.InputError, match=r"may lack single cells in NSMBayes and NLE: missing='marginalise'"):
        nsm.NPLMMD(LINEAR_PRIOR, nsm.JaxSimulator(lambda key, theta: theta)).build_posterior(np.vstack([x, x]))


@pytest.mark.filterwarnings("ignore:.* lie outside the range:UserWarning")
def test_names_of_columns_and_missing_cells_go_together(robust):
    x = linear_data(10, fraction=0.2, seed=4)
    named = nsm.NLE(LINEAR_PRIOR, x_names=("a", "b", "c"), sampler=PriorSampler())
    frame = pd.DataFrame(x[:, ::-1], columns=["c", "b", "a"])
    theta = LINEAR_PRIOR.sample(100, seed=0)
    method = named.append_simulations(theta, pd.DataFrame(np.zeros((100, 3)) + theta[:, :1], columns=["a", "b", "c"]))
    method.adopt(robust.density)
    posterior = method.build_posterior(frame, missing="marginalise", seed=0)
    np.testing.assert_array_equal(posterior.x, x)
