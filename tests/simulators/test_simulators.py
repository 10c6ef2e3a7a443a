import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.simulators import as_simulator, check_gradients, require_differentiable
from nsmbayes.simulators.given import simulate_at

TASK = nsm.tasks.get("gnk")


def keys(m, seed=0):
    return jax.random.split(jax.random.key(seed), m)


def noisy(rng, theta):
    return theta + rng.standard_normal(len(theta))


SIMULATORS = {
    "jax": nsm.JaxSimulator(lambda key, theta: theta + jax.random.normal(key, theta.shape)),
    "numpy": nsm.NumpySimulator(noisy),
    "task": as_simulator(TASK),
    "task by rows": as_simulator(dataclasses.replace(TASK, simulate_one=None)),
}


@pytest.mark.parametrize("name", SIMULATORS)
def test_a_row_depends_on_its_own_key_and_theta_alone(name):
    """So that some simulations of a step can be kept while others are drawn anew."""
    theta = np.tile(TASK.prior.mean, (4, 1))
    theta[2] += 0.1
    x = SIMULATORS[name].rows(keys(4), theta)
    assert x.dtype == np.float64
    assert np.allclose(SIMULATORS[name].rows(keys(4)[1:3], theta[1:3]), x[1:3], rtol=1e-10)
    assert len(np.unique(x[:, 0])) == 4


def test_a_task_is_its_own_simulator():
    theta = np.tile(TASK.theta_true, (5, 1))
    with jax.enable_x64(True):
        expected = TASK.simulate_many(keys(5), theta)
    assert np.allclose(as_simulator(TASK).rows(keys(5), theta), expected, rtol=1e-12)
    assert as_simulator(TASK).differentiable
    assert not as_simulator(nsm.tasks.get("sir")).differentiable


@pytest.mark.parametrize("value", [None, "gnk", lambda key, theta: theta])
def test_a_bare_function_must_say_what_it_is(value):
    with pytest.raises(nsm.InputError, match=r"`simulator` must be nsmbayes\.JaxSimulator"):
        as_simulator(value)


@pytest.mark.parametrize("kind", [nsm.JaxSimulator, nsm.NumpySimulator])
def test_a_simulator_is_made_of_a_function(kind):
    with pytest.raises(nsm.InputError, match="`one` must be a function"):
        kind(3)


def test_derivatives_are_demanded_and_looked_at():
    with pytest.raises(nsm.InputError, match="must be differentiable for NPL-MMD"):
        require_differentiable(SIMULATORS["numpy"], "NPL-MMD")
    with pytest.raises(nsm.InputError, match="must be differentiable"):
        require_differentiable(nsm.JaxSimulator(lambda key, theta: theta, differentiable=False), "NPL-MMD")
    with pytest.raises(nsm.InputError, match="derivative with respect to theta is zero"):
        check_gradients(np.zeros((3, 2)))
    check_gradients(np.array([[0.0, 1e-9]]))


def test_sets_follow_the_prior_and_the_simulator():
    theta, x = nsm.simulate_sets(TASK.prior, TASK, m=2000, n=3, seed=4)
    assert x.shape == (2000, 3, 1)
    # 4.5 standard errors: seen by chance with probability 3e-5 for four means
    assert np.abs((theta.mean(axis=0) - TASK.prior.mean) / TASK.prior.std).max() < 4.5 / np.sqrt(2000)
    again = nsm.simulate_sets(TASK.prior, TASK, m=2000, n=3, seed=4)
    assert np.array_equal(theta, again[0])
    assert np.array_equal(x, again[1])
    # the median of a g-and-k distribution is its first parameter
    assert np.mean(x[..., 0] < theta[:, :1]) == pytest.approx(0.5, abs=4.5 * 0.5 / np.sqrt(6000))


def test_the_budget_is_a_limit():
    theta, x = nsm.simulate_sets(TASK.prior, TASK, m=10, n=5, seed=0)
    method = nsm.NPE(TASK.prior, budget=70).append_simulations(theta, x)
    assert method.simulations_used == 50
    with pytest.raises(nsm.BudgetError, match="50 more simulations would make 100, and the budget is 70"):
        method.append_simulations(theta, x)
    assert method.simulations_used == 50
    rows = nsm.NLE(TASK.prior)
    rows.budget = 9
    with pytest.raises(nsm.BudgetError):
        rows.append_simulations(theta, x[:, 0])
    rows.append_simulations(theta[:9], x[:9, 0])
    assert rows.simulations_used == 9


def test_a_simulator_that_is_traced_sees_one_theta():
    seen = []

    def one(key, theta):
        seen.append(theta.shape)
        return jnp.zeros(2)

    assert nsm.JaxSimulator(one).rows(keys(7), np.zeros((7, 3))).shape == (7, 2)
    assert set(seen) == {(3,)}


def test_simulations_that_were_kept_are_not_made_again(tmp_path):
    """Also if some files are lost or damaged; not those of other parameters, another seed or another simulator."""
    calls = str(tmp_path / "calls")

    def simulator(rng, theta):
        with open(calls, "a") as file:
            file.write(".")
        return theta + rng.normal(size=1)

    def count():
        with open(calls, "r+") as file:
            made = len(file.read())
            file.truncate(0)
        return made

    one, theta = nsm.NumpySimulator(simulator), np.linspace(0, 1, 300)[:, None]
    options = {"keep": tmp_path / "kept", "progress": False}
    first = simulate_at(one, theta, seed=0, **options)
    assert count() == 300
    np.testing.assert_array_equal(simulate_at(one, theta, seed=0, progress=False), first)
    count()
    lost, damaged, *_ = sorted((tmp_path / "kept").iterdir())
    lost.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-5])
    np.testing.assert_array_equal(simulate_at(one, theta, seed=0, **options), first)
    assert count() == 6
    assert not np.array_equal(simulate_at(one, theta, seed=1, **options), first)
    assert count() == 300
    other = nsm.NumpySimulator(lambda rng, theta: theta)
    np.testing.assert_array_equal(simulate_at(other, theta, seed=0, **options), theta)
