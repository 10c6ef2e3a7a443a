"""The flow that knows the noise: its closed forms against autodiff; what it learns is in the tests of methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import noisy_flow
from support.reference import log_transforms

import nsmbayes as nsm
from nsmbayes.surrogates import Frame


def log_prob(flow, theta, x, frame, h):
    """log q_h(x | theta) from the definition: every matrix written out, every transform from its weights."""
    z = (x - flow.scale_x.centre) / flow.scale_x.scale
    t = (theta - flow.scale_theta.centre) / flow.scale_theta.scale
    _, (mean,), (S,) = flow.base.mixture(t)
    noise = h**2 * frame.basis @ frame.basis.T / jnp.outer(flow.scale_x.scale, flow.scale_x.scale)
    K = jnp.linalg.cholesky(S + noise)
    inverse = jnp.linalg.inv(K)
    R = inverse @ noise @ inverse.T
    spread = jnp.sqrt(jnp.diag(R) + 1e-4)
    correlations = [R[i, j] / spread[i] / spread[j] for i in range(len(z)) for j in range(i)]
    told = jnp.concatenate([3 * jnp.tanh(t / 3), jnp.log(spread), jnp.array(correlations)])
    log_det = jnp.log(jnp.linalg.det(K)) + jnp.log(flow.scale_x.scale).sum()
    return log_transforms(flow, inverse @ (z - mean), told) - log_det


def some_frame(d, seed=0):
    rng = np.random.default_rng(seed)
    return Frame(jnp.asarray(rng.standard_normal(d)), jnp.asarray(np.eye(d) + 0.3 * rng.standard_normal((d, d))))


@pytest.mark.parametrize("d", [3, 8])
def test_derivatives_at_any_noise_equal_autodiff(x64, d):
    flow, frame, theta = noisy_flow(d), some_frame(d), jnp.array([0.4, -0.7])
    y = jnp.asarray(np.random.default_rng(1).standard_normal((20, d)) * np.geomspace(0.1, 1e3, 20)[:, None])

    @jax.jit
    def both(h, of):
        def at(y):
            return log_prob(flow, theta, frame.offset + frame.basis @ y, frame, of)

        expected = jax.vmap(lambda y: (jax.grad(at)(y), jnp.trace(jax.hessian(at)(y))))(y)
        return flow.derivatives_at(theta, frame, h)(y), expected

    for h in (0.0, 0.1, 1.0, 6.4):
        found, expected = both(h, h)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    found, wrong = both(0.1, 0.11)
    assert not np.allclose(found.score, wrong[0], rtol=1e-4)


def test_the_loss_has_a_gradient_in_theta(x64):
    """What gradient-based samplers ask for, through the closed forms. Against central differences."""
    flow, frame, y = noisy_flow(2, transforms=1), some_frame(2), jnp.array([[0.3, -0.4], [2.0, 1.0]])
    theta, step = jnp.array([0.5, -1.0]), 1e-5

    @jax.jit
    def loss(theta):
        score, laplacian = flow.derivatives_at(theta, frame, 0.3)(y)
        return (score**2).sum() + 2 * laplacian.sum()

    differences = [(loss(theta + step * e) - loss(theta - step * e)) / (2 * step) for e in jnp.eye(2)]
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(theta), differences, rtol=1e-6)


def test_noise_is_known_by_its_covariance(x64):
    """Turned axes of y are the same noise: the score turns with them, and the Laplacian stays."""
    flow, frame, theta = noisy_flow(3, transforms=1), some_frame(3), jnp.array([0.4, -0.7])
    y = jnp.array([[0.3, -0.4, 1.0]])
    turn = jnp.asarray(np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0])
    at = jax.jit(lambda basis, y: flow.derivatives_at(theta, Frame(frame.offset, basis), 0.7)(y))
    one, other = at(frame.basis, y), at(frame.basis @ turn, y @ turn)
    np.testing.assert_allclose(other.score, one.score @ turn, rtol=1e-9)
    np.testing.assert_allclose(other.laplacian, one.laplacian, rtol=1e-9)


def test_one_dimension_is_refused():
    with pytest.raises(nsm.InputError, match=r"conditional Gaussian.*surrogate='mdn'"):
        noisy_flow(1)
