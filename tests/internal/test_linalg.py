"""Factors of many small matrices, against NumPy's and against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes._internal.linalg import cholesky, inverse_and_log_det, inverse_factor, triangular_inverse

pytestmark = pytest.mark.usefixtures("x64")


def matrices(d, batch=(4, 3), seed=0):
    root = np.random.default_rng(seed).standard_normal((*batch, d, d + 2))
    return root @ np.swapaxes(root, -1, -2)


@pytest.mark.parametrize("d", [1, 2, 7, 30])
def test_factors_are_numpys(d):
    S = matrices(d)
    L, (W, log_det), (P, again) = (f(jnp.asarray(S)) for f in (cholesky, inverse_factor, inverse_and_log_det))
    assert np.allclose(L, np.linalg.cholesky(S), rtol=1e-9, atol=1e-12)
    assert np.allclose(W, np.linalg.inv(np.linalg.cholesky(S)), rtol=1e-6, atol=1e-9)
    assert np.allclose(P, np.linalg.inv(S), rtol=1e-6, atol=1e-9)
    assert np.allclose(log_det, np.linalg.slogdet(S)[1], rtol=1e-9)
    assert np.array_equal(log_det, again)
    assert np.allclose(triangular_inverse(L) @ L, np.eye(d), atol=1e-8)


def test_derivatives_are_those_of_jax():
    S, weights = jnp.asarray(matrices(4, batch=(2,))), jnp.asarray(matrices(4, batch=(2,), seed=1))

    def loss(invert):
        def value(A):
            P, log_det = invert(A + jnp.swapaxes(A, -1, -2))
            return (weights * P).sum() + log_det.sum()

        return value

    reference = loss(lambda S: (jnp.linalg.inv(S), jnp.linalg.slogdet(S)[1]))
    for ours in (
        loss(inverse_and_log_det),
        loss(lambda S: (lambda W, log_det: (jnp.swapaxes(W, -1, -2) @ W, log_det))(*inverse_factor(S))),
    ):
        assert np.allclose(jax.grad(ours)(S), jax.grad(reference)(S), rtol=1e-8)
        tangent = jax.jvp(jax.grad(ours), (S,), (weights,))[1]
        assert np.allclose(tangent, jax.jvp(jax.grad(reference), (S,), (weights,))[1], rtol=1e-7)
    of_factor = jax.grad(lambda S: (weights * cholesky(S)).sum())(S)
    expected = jax.grad(lambda S: (weights * jnp.linalg.cholesky(S, symmetrize_input=False)).sum())(S)
    # JAX spreads the derivative over both triangles, ours sees the lower one
    assert np.allclose(
        of_factor + jnp.swapaxes(of_factor, -1, -2), expected + jnp.swapaxes(expected, -1, -2), rtol=1e-8
    )


def test_derivatives_of_a_triangular_inverse_are_those_of_jax():
    L, weights = jnp.tril(jnp.asarray(matrices(4, batch=(2,)))), jnp.asarray(matrices(4, batch=(2,), seed=1))
    ours, reference = (
        jax.grad(lambda L, f=f: (weights * f(jnp.tril(L))).sum())(L) for f in (triangular_inverse, jnp.linalg.inv)
    )
    assert np.allclose(ours, reference, rtol=1e-8)


def test_what_is_not_positive_definite_has_no_factor():
    assert not np.isfinite(cholesky(-jnp.eye(3))).all()
    assert not np.isfinite(inverse_and_log_det(jnp.diag(jnp.array([1.0, -1.0, 1.0])))[1])
