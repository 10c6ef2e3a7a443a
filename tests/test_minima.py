"""Newton's method against functions whose minima are known."""

import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.minima import minimise


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
