"""Kernel distances against closed forms for Gaussians, where E k(X, y) is a Gaussian again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.diagnostics.kernels import gram, kernel_score, mmd2, pairwise_mmd2

L = 1.3


def exact_score(theta, x, weights):
    """sum_i w_i S(N(theta, 1), x_i) in one dimension."""
    within = L / np.sqrt(L**2 + 2)
    across = L / np.sqrt(L**2 + 1) * np.exp(-((x[:, 0] - theta) ** 2) / (2 * (L**2 + 1)))
    return weights.sum() * within - 2 * weights @ across


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((6, 1)) * 2, rng.uniform(0, 2, 6)


def estimates(score, x, weights, theta=0.7, repeats=40_000, size=4):
    simulated = theta + np.random.default_rng(1).standard_normal((repeats, size, 1))
    return np.asarray(jax.jit(jax.vmap(lambda y: score(y, jnp.asarray(x), jnp.asarray(weights), L)))(simulated))


def z_score(values, truth):
    return (values.mean() - truth) / (values.std() / np.sqrt(len(values)))


def with_diagonal(simulated, x, weights, lengthscale):
    """The biased estimate: what a forgotten `j != k` would make of it."""
    within = gram(simulated, simulated, lengthscale).mean()
    return weights.sum() * within - 2 * weights @ gram(x, simulated, lengthscale).mean(axis=1)


def test_the_kernel_score_is_unbiased(x64, data):
    # |z| > 4.5 has probability 7e-6; with the diagonal included z is far beyond
    truth = exact_score(0.7, *data)
    assert abs(z_score(estimates(kernel_score, *data), truth)) < 4.5
    assert abs(z_score(estimates(with_diagonal, *data), truth)) > 45


def test_the_kernel_score_is_mmd2_up_to_a_constant(x64, data):
    x, weights = data
    weights = weights / weights.sum()
    y, z = np.random.default_rng(2).standard_normal((2, 5, 1))
    constant = weights @ np.exp(-((x - x.T) ** 2) / (2 * L**2)) @ weights

    def by_hand(y):
        K = np.exp(-((y - y.T) ** 2) / (2 * L**2))
        across = np.exp(-((x - y.T) ** 2) / (2 * L**2))
        return (K.sum() - 5) / 20 - 2 * weights @ across.mean(axis=1) + constant

    for simulated in (y, z):
        assert float(kernel_score(*map(jnp.asarray, (simulated, x, weights)), L)) + constant == pytest.approx(
            by_hand(simulated), rel=1e-12
        )


def test_gradients_of_the_kernel_score(x64, data):
    x, weights = map(jnp.asarray, data)
    u = jnp.asarray(np.random.default_rng(3).standard_normal((4, 1)))

    def score(theta):
        return kernel_score(theta + u, x, weights, L)

    h = 1e-5
    assert float(jax.grad(score)(0.3)) == pytest.approx(float(score(0.3 + h) - score(0.3 - h)) / (2 * h), rel=1e-7)


def test_mmd2_is_that_of_the_metrics(x64):
    y, z = np.random.default_rng(0).standard_normal((2, 7, 3))
    assert float(mmd2(jnp.asarray(y), jnp.asarray(z), L)) == pytest.approx(
        nsm.metrics.mmd2(y, z, lengthscale=L), rel=1e-12
    )
    assert float(mmd2(jnp.asarray(y), jnp.asarray(y), L)) == pytest.approx(0, abs=1e-15)


def test_distances_between_many_data_sets():
    rng = np.random.default_rng(0)
    x, targets = rng.standard_normal((3, 5, 2)), rng.standard_normal((13, 5, 2)) + 1
    expected = [[nsm.metrics.mmd2(a, b, lengthscale=0.8) for b in targets] for a in x]
    assert np.allclose(pairwise_mmd2(x, targets, 0.8), expected, atol=1e-6)
    assert np.allclose(np.diag(pairwise_mmd2(x, x, 0.8)), 0, atol=1e-6)
