"""x ~ N(theta, 1) with theta ~ N(0, 2^2): a problem on which every baseline has a known answer."""

import jax
import numpy as np
import pytest
from scipy import integrate, optimize

import nsmbayes as nsm

PRIOR = nsm.GaussianPrior([0.0], [4.0])
SIMULATOR = nsm.JaxSimulator(lambda key, theta: theta + jax.random.normal(key, (1,)))
LENGTHSCALE = 1.0


def observed(n=30, outliers=3, seed=0):
    x = 1 + np.random.default_rng(seed).standard_normal((n, 1))
    x[:outliers] = 40.0
    return x


def exact_posterior(x):
    """Mean and standard deviation of the posterior of the likelihood."""
    precision = len(x) + 1 / 4
    return x.sum() / precision, precision**-0.5


def attraction(theta, x):
    """E k(Y, x) of Y ~ N(theta, 1)."""
    l2 = LENGTHSCALE**2
    return np.sqrt(l2 / (l2 + 1)) * np.exp(-((x - theta) ** 2) / (2 * (l2 + 1)))


def mmd_minimiser(x, weights):
    """The theta whose N(theta, 1) is nearest to the weighted observations in the maximum mean discrepancy."""
    grid = np.linspace(-5, 5, 201)
    start = grid[(attraction(grid[:, None], x[:, 0]) @ weights).argmax()]
    result = optimize.minimize_scalar(
        lambda theta: -attraction(theta, x[:, 0]) @ weights, bounds=(start - 0.1, start + 0.1), method="bounded"
    )
    return result.x


def mmd_posterior(x, beta):
    """Mean and standard deviation of exp(-beta sum_i S(theta, x_i)) prior(theta), with the exact kernel score."""

    def density(theta):
        return np.exp(2 * beta * attraction(theta, x[:, 0]).sum() - theta**2 / 8 - 2 * beta * len(x) * 0.5)

    moments = [integrate.quad(lambda t, k=k: t**k * density(t), -8, 8, limit=400, points=[1])[0] for k in range(3)]
    mean = moments[1] / moments[0]
    return mean, np.sqrt(moments[2] / moments[0] - mean**2)


def check_posterior(posterior, n):
    """What every baseline's posterior answers."""
    d = posterior.dim
    draws = posterior.sample((20,), seed=0)
    assert draws.shape == (20, d)
    assert np.array_equal(draws, posterior.sample((20,), seed=0))
    flat = posterior.draws.reshape(-1, d)
    assert np.allclose(posterior.mean, flat.mean(axis=0))
    assert np.allclose(posterior.covariance, np.atleast_2d(np.cov(flat.T)))
    assert np.isclose(posterior.mse(np.ones(d)), ((flat - 1) ** 2).sum(axis=1).mean())
    assert posterior.contains(posterior.mean)
    assert not posterior.contains(posterior.mean + 100 * posterior.std)
    assert isinstance(posterior.converged, bool)
    assert np.array_equal(posterior.weights, np.ones(n))
    assert posterior.n == n
    assert [outlier.weight for outlier in posterior.outliers(3)] == [1.0] * 3
    with pytest.raises(nsm.InputError, match="has no loss that is a sum over observations"):
        posterior.leave_one_out()
    assert posterior.beta > 0
    text = posterior.summary()
    assert text.startswith(f"{posterior.label} posterior from {n} observations")
    assert ("NOT CONVERGED" in text) == (not posterior.converged)
    assert posterior.label in repr(posterior)
