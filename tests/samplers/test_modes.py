"""Newton's method and Adam against functions whose minima are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.methods.baselines.descent import stochastic_descent
from nsmbayes.samplers import minimise


def rosenbrock(u, data):
    return (data - u[0]) ** 2 + 100 * (u[1] - u[0] ** 2) ** 2


def four_wells(u, data):
    return jnp.sum((u**2 - 1) ** 2) + data * jnp.sum(u)


def test_finds_the_minimum_at_the_end_of_a_bent_valley():
    starts = np.random.default_rng(0).uniform(-2, 2, (10, 2))
    found = minimise(rosenbrock, 1.0, starts)
    np.testing.assert_allclose(found.points, [[1, 1]], atol=1e-6)
    assert found.starts.tolist() == [10]


def test_finds_all_wells_and_orders_them():
    starts = np.random.default_rng(1).uniform(-2, 2, (40, 2))
    found = minimise(four_wells, 0.1, starts)
    assert found.starts.sum() == 40
    assert (np.diff(found.values) >= 0).all()
    assert set(map(tuple, np.sign(found.points).astype(int))) == {(-1, -1), (-1, 1), (1, -1), (1, 1)}
    assert found.points[0] == pytest.approx(found.points[0, 0])
    assert found.points[0, 0] < 0


def test_a_function_without_a_finite_value_is_left_out():
    """Below zero the logarithm is NaN: starts there lead nowhere, the others to 1."""
    found = minimise(lambda u, data: (u[0] - jnp.log(u[0])).astype(float), None, np.linspace(-1, 3, 9)[:, None])
    np.testing.assert_allclose(found.points, [[1]], atol=1e-6)
    assert found.starts.sum() == 6


def test_a_noisy_loss_is_descended(x64):
    """To the minimum of its mean, over 64 runs; |z| > 4.5 for two coordinates has probability 1.4e-5.

    Steps that become smaller leave less noise at the end.
    """
    centre = jnp.array([1.0, -2.0])

    def loss(v, key):
        return ((v - centre + jax.random.normal(key, (2,))) ** 2).sum()

    def ends(decay):
        def run(key):
            return stochastic_descent(loss, jnp.zeros(2), key, steps=500, rate=0.05, decay=decay)

        return jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 64)))

    (end, gradients), (noisy_end, _) = ends(True), ends(False)
    error = end - np.asarray(centre)
    assert np.abs(error.mean(axis=0) / error.std(axis=0)).max() * np.sqrt(64) < 4.5
    assert (error.std(axis=0) < 0.6 * noisy_end.std(axis=0)).all()
    assert gradients.shape == (64, 500, 2)
    assert gradients[:, -100:].std() == pytest.approx(2, rel=0.1)
