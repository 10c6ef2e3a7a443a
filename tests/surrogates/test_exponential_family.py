import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.reference import log_q, noisy_log_q, random_family

from nsmbayes.surrogates import init_exponential_family

CASES = [(1, 4, False), (1, 4, True), (3, 2, False), (3, 2, True)]


@pytest.mark.parametrize(("d_x", "d_theta", "asinh"), CASES)
def test_derivatives_equal_autodiff(x64, d_x, d_theta, asinh):
    family = random_family(d_x, d_theta, asinh=asinh)
    rng = np.random.default_rng(1)
    basis = jnp.asarray(rng.standard_normal((d_x, d_x)))
    theta = jnp.asarray(rng.standard_normal((1000, d_theta)))
    x = jnp.asarray(rng.standard_normal((1000, d_x)) * 10 ** rng.uniform(-2, 1, (1000, 1)))

    def by_autodiff(theta, x):
        gradient = jax.grad(log_q, 2)(family, theta, x)
        hessian = jax.hessian(log_q, 2)(family, theta, x)
        return gradient @ basis, jnp.trace(basis.T @ hessian @ basis)

    score, laplacian = jax.jit(jax.vmap(family.derivatives, (0, 0, None)))(theta, x, basis)
    expected_score, expected_laplacian = jax.jit(jax.vmap(by_autodiff))(theta, x)
    np.testing.assert_allclose(score, expected_score, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(laplacian, expected_laplacian, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("asinh", [False, True])
def test_network_coordinates_agree_with_user_coordinates(x64, asinh):
    """In the network's units the Jacobian of asinh is absent; for an affine standardiser both views are the same."""
    family = random_family(2, 3, asinh=asinh)
    rng = np.random.default_rng(2)
    theta, x = jnp.asarray(rng.standard_normal(3)), jnp.asarray(rng.standard_normal(2))
    z, t = family.scale_x(x), family.scale_theta(theta)

    def log_q_of_z(z):
        return (
            family.T.V @ jnp.tanh(family.T.W @ z + family.T.c) @ t
            + (family.b.V @ jnp.tanh(family.b.W @ z + family.b.c))[0]
        )

    score, laplacian = eqx.filter_jit(family.network_derivatives)(t, z)
    np.testing.assert_allclose(score, jax.jit(jax.grad(log_q_of_z))(z), rtol=1e-10)
    np.testing.assert_allclose(laplacian, jnp.trace(jax.jit(jax.hessian(log_q_of_z))(z)), rtol=1e-10)
    if not asinh:
        user = eqx.filter_jit(family.derivatives)(theta, x, jnp.diag(family.scale_x.scale))
        np.testing.assert_allclose(score, user.score, rtol=1e-10)
        np.testing.assert_allclose(laplacian, user.laplacian, rtol=1e-10)


@pytest.mark.parametrize("d_x", [1, 3])
def test_noisy_families_equal_autodiff(x64, d_x):
    """With the noise folded into the weights, and in the form in which training sees it."""
    family = random_family(d_x, 2, noisy=True)
    rng = np.random.default_rng(1)
    theta, x = jnp.asarray(rng.standard_normal(2)), jnp.asarray(rng.standard_normal(d_x))
    h = jnp.asarray(rng.uniform(0.1, 3.0, d_x))
    basis = jnp.diag(h * family.scale_x.scale)
    gradient = jax.jit(jax.grad(noisy_log_q, 2))(family, theta, x, h)
    hessian = jax.jit(jax.hessian(noisy_log_q, 2))(family, theta, x, h)
    z, t = family.scale_x(x), family.scale_theta(theta)
    for score, laplacian in (
        jax.jit(lambda: family.with_noise(h).derivatives(theta, x, basis))(),
        eqx.filter_jit(family.network_derivatives)(t, z, h),
    ):
        np.testing.assert_allclose(score, basis @ gradient, rtol=1e-9)
        np.testing.assert_allclose(laplacian, jnp.trace(basis @ hessian @ basis), rtol=1e-9)


@pytest.mark.parametrize("asinh", [False, True])
@pytest.mark.parametrize("far", [1e6, 1e20, 1e150, 1e300])
def test_derivatives_stay_finite_and_bounded_far_out(x64, far, asinh):
    derivatives_at = eqx.filter_jit(random_family(2, 3, asinh=asinh).family_derivatives)
    for x in (jnp.array([far, -far]), jnp.array([-far, 1.0])):
        derivatives = [np.asarray(part) for part in derivatives_at(x, jnp.eye(2))]
        assert all(np.isfinite(part).all() for part in derivatives)
        assert max(np.abs(part).max() for part in derivatives) < 100


def test_no_density_is_offered():
    """Bounded T and b do not make q normalisable, so there must be nothing that pretends to evaluate or sample it."""
    family = random_family(1, 2)
    assert not hasattr(family, "log_prob")
    assert not hasattr(family, "sample")


def test_initialisation_is_glorot_with_small_biases():
    template = random_family(3, 4)
    family = init_exponential_family(jax.random.key(0), template.scale_x, template.scale_theta, hidden=128)
    limit = np.sqrt(6 / (3 + 128))
    assert family.T.W.shape == (128, 3)
    assert family.T.V.shape == (4, 128)
    assert family.b.V.shape == (1, 128)
    assert 0.9 * limit < np.abs(family.T.W).max() <= limit
    np.testing.assert_allclose(family.T.c, 0.01)
