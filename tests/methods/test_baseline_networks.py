"""Networks for data sets, and the flows that NPE and RSNLE are made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes._internal.precision import in_double
from nsmbayes.methods.baselines.networks import DeepSet, init_cost_network, init_coupling_flow, init_posterior_flow
from nsmbayes.surrogates import Standardiser

pytestmark = pytest.mark.baselines


def units(d, scale=1.0):
    return Standardiser(jnp.zeros(d), jnp.full(d, scale), asinh=False)


def shaken(model, seed=0):
    """The model in double precision with noise on every weight, so that nothing is near its simple initial value."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape) if eqx.is_inexact_array(leaf) else leaf,
        in_double(model),
        is_leaf=lambda node: isinstance(node, Standardiser),
    )


@eqx.filter_jit
def log_density_by_autodiff(transform, z, condition):
    u = transform.transform(z, condition)
    jacobian = jax.jacfwd(lambda z: transform.transform(z, condition))(z)
    return -0.5 * u @ u - len(z) / 2 * jnp.log(2 * jnp.pi) + jnp.linalg.slogdet(jacobian)[1]


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_coupling_flow_is_a_density(x64, d):
    flow = shaken(init_coupling_flow(jax.random.key(0), units(d), units(2), layers=3, hidden=6))
    t, z = jnp.array([0.4, -1.0]), jnp.linspace(-1, 1.5, d)
    expected = log_density_by_autodiff(flow.transform, z, 3 * jnp.tanh(t / 3))
    assert float(eqx.filter_jit(flow.network_log_prob)(t, z)) == pytest.approx(float(expected), rel=1e-10)
    # every statistic depends on theta
    transform = eqx.filter_jit(flow.transform.transform)
    moved = transform(z, t) - transform(z, t + 0.5)
    assert (jnp.abs(moved) > 1e-6).all()


def test_posterior_draws_follow_the_posterior_density(x64):
    """What is drawn from u = N(0, I) is carried back to u by the transform, and units are undone."""
    flow = init_posterior_flow(
        jax.random.key(0), units(1), units(3, 2.0), summaries=4, embedding_hidden=5, transforms=2, hidden=6
    )
    flow = shaken(flow)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((7, 1)))
    draws = eqx.filter_jit(flow.sample)(jax.random.key(1), x, 5)
    summary = eqx.filter_jit(flow.embedding)(x)
    u = jax.jit(jax.vmap(lambda theta: flow.transform.transform(theta / 2, summary)))(draws)
    assert np.allclose(u, jax.random.normal(jax.random.key(1), (5, 3)), atol=1e-8)
    t = draws[0] / 2
    expected = log_density_by_autodiff(flow.transform, t, summary)
    assert float(eqx.filter_jit(flow.network_log_prob)(t, summary)) == pytest.approx(float(expected), rel=1e-10)
    assert float(eqx.filter_jit(flow.training_loss)(t, x)) == pytest.approx(-float(expected), rel=1e-10)


def test_data_sets_have_no_order(x64):
    network = eqx.filter_jit(in_double(DeepSet(jax.random.key(0), 2, hidden=6, outputs=3)))
    z = jnp.asarray(np.random.default_rng(0).standard_normal((9, 2)))
    assert network(z).shape == (3,)
    assert np.allclose(network(z), network(z[::-1]), rtol=1e-12)
    assert np.allclose(network(z), network(jnp.concatenate([z, z])), rtol=1e-12)  # every reading twice is the same data
    assert not np.allclose(network(z), network(z + 0.5))


def test_costs_are_positive_and_have_a_unit(x64):
    network = init_cost_network(jax.random.key(0), units(2), units(1, 3.0), unit=0.01, summaries=3, hidden=5, blocks=2)
    network = shaken(network)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((20, 4, 2)))
    summaries = jax.jit(jax.vmap(network.summary))(x)
    theta = jnp.linspace(-5, 5, 20)[:, None]
    costs = jax.jit(jax.vmap(network.cost))(theta, summaries)
    assert (costs > 0).all()
    assert np.allclose(costs, 0.01 * jax.jit(jax.vmap(network.network_cost))(theta / 3, summaries))
