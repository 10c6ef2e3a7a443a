"""What every surrogate must keep: one table of constructors, one suite."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import noisy_flow
from support.reference import log_normal, log_q, log_transforms, random_family, solved

from nsmbayes.surrogates import (
    Frame,
    Standardiser,
    init_masked_autoregressive_flow,
    init_mixture_density_network,
)

POINTS, FARTHEST = 1000, 1e6
SCORE_TOLERANCE, LAPLACIAN_TOLERANCE = 1e-5, 1e-4


def random_standardiser(rng, d):
    return Standardiser(jnp.asarray(rng.standard_normal(d)), jnp.asarray(rng.uniform(0.5, 2.0, d)), asinh=False)


def shaken(model, rng, size):
    """The model with noise on every weight, so that nothing it computes is near its simple initial value."""
    return jax.tree.map(
        lambda leaf: leaf + size * rng.standard_normal(leaf.shape) if eqx.is_inexact_array(leaf) else leaf,
        model,
        is_leaf=lambda node: isinstance(node, Standardiser),
    )


def random_mdn(d_x, d_theta, **options):
    rng = np.random.default_rng(0)
    scales = random_standardiser(rng, d_x), random_standardiser(rng, d_theta)
    model = init_mixture_density_network(
        jax.random.key(0), *scales, components=5, hidden=(16, 16), floor=0.02, ceiling=1e3, **options
    )
    return shaken(model, rng, 0.2)


def random_maf(d_x, d_theta, *, squash):
    rng = np.random.default_rng(0)
    scales = random_standardiser(rng, d_x), random_standardiser(rng, d_theta)
    model = init_masked_autoregressive_flow(
        jax.random.key(0), *scales, hidden=16, squash=squash, allow_one_dimension=True
    )
    return shaken(model, rng, 0.3)


def log_mixture(model, theta, x):
    """The mixture density network's log density, each component by JAX's own multivariate normal."""
    z = (x - model.scale_x.centre) / model.scale_x.scale
    t = (theta - model.scale_theta.centre) / model.scale_theta.scale
    log_weights, means, covariances = model.mixture(t)
    logs = log_weights + jax.vmap(lambda m, S: log_normal(z, m, S))(means, covariances)
    return jax.nn.logsumexp(logs) - jnp.log(model.scale_x.scale).sum()


def log_flow(model, theta, x):
    """The flow's log density from its weights: the formula for log q in the paper, one transform after the other."""
    z = (x - model.scale_x.centre) / model.scale_x.scale
    t = (theta - model.scale_theta.centre) / model.scale_theta.scale
    t = 3 * jnp.tanh(t / 3) if model.squash else t
    return log_transforms(model, z, t) - jnp.log(model.scale_x.scale).sum()


def log_noise_free_flow(model, theta, x):
    """The flow that knows the noise, where there is none: the same of what its base has whitened."""
    z = (x - model.scale_x.centre) / model.scale_x.scale
    t = (theta - model.scale_theta.centre) / model.scale_theta.scale
    _, (mean,), (covariance,) = model.base.mixture(t)
    (whitened, log_det), d = solved(covariance, z - mean), len(z)
    told = jnp.concatenate([3 * jnp.tanh(t / 3), jnp.full(d, jnp.log(0.01)), jnp.zeros(d * (d - 1) // 2)])
    return log_transforms(model, whitened, told) - log_det - jnp.log(model.scale_x.scale).sum()


CASES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "family, d_x=1": (lambda: random_family(1, 4), log_q),
    "family, d_x=3": (lambda: random_family(3, 2), log_q),
    "family, d_x=3, asinh": (lambda: random_family(3, 2, asinh=True), log_q),
    "mdn, d_x=1": (lambda: random_mdn(1, 2), log_mixture),
    "mdn, d_x=3": (lambda: random_mdn(3, 2), log_mixture),
    "mdn of precisions, d_x=3": (lambda: random_mdn(3, 2, factor="precision"), log_mixture),
    "mdn of precisions, d_x=7": (lambda: random_mdn(7, 2, factor="precision"), log_mixture),
    "maf, d_x=1, paper": (lambda: random_maf(1, 2, squash=False), log_flow),
    "maf, d_x=3": (lambda: random_maf(3, 2, squash=True), log_flow),
    "noisy flow, d_x=3": (lambda: noisy_flow(3, transforms=3), log_noise_free_flow),
}


class Case(NamedTuple):
    """A surrogate with points, and the gradient and Hessian of its log density there by autodiff."""

    surrogate: Any
    log_prob: Any
    theta: Any
    x: Any
    gradient: Any
    hessian: Any
    derivatives: Any  # the surrogate's own, of many thetas, points and bases, compiled once


@pytest.fixture(scope="module", params=CASES)
def case(request):
    construct, log_prob = CASES[request.param]
    with jax.enable_x64(True):
        surrogate = construct()
        d_x, d_theta = len(surrogate.scale_x.scale), len(surrogate.scale_theta.scale)
        rng = np.random.default_rng(1)
        theta = jnp.asarray(2 * rng.standard_normal((POINTS, d_theta)))
        directions = rng.standard_normal((POINTS, d_x))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        radii = np.concatenate([rng.uniform(0, 5, POINTS // 2), np.geomspace(5, FARTHEST, POINTS - POINTS // 2)])
        x = jnp.asarray(directions * radii[:, None])

        @jax.jit
        @jax.vmap
        def by_autodiff(theta, x):
            gradient = jax.grad(log_prob, 2)
            return gradient(surrogate, theta, x), jax.jacfwd(gradient, 2)(surrogate, theta, x)

        derivatives = jax.jit(jax.vmap(surrogate.derivatives))
        yield Case(surrogate, log_prob, theta, x, *map(np.asarray, by_autodiff(theta, x)), derivatives)


def assert_equal_autodiff(case, basis):
    """Errors are relative to the value or, where this is smaller, to what a standard normal in the surrogate's own
    standardised coordinates has at distance one: a score of |D| and a Laplacian of |D|^2, D = L / scale of x."""
    score, laplacian = case.derivatives(case.theta, case.x, jnp.asarray(basis))
    expected_score = np.einsum("nij,ni->nj", basis, case.gradient)
    expected_laplacian = np.einsum("nij,nik,nkj->n", basis, case.hessian, basis)
    natural = np.linalg.norm(basis / np.asarray(case.surrogate.scale_x.scale)[:, None], axis=(1, 2))
    score_error = np.linalg.norm(score - expected_score, axis=1)
    assert np.all(score_error <= SCORE_TOLERANCE * np.maximum(np.linalg.norm(expected_score, axis=1), natural))
    laplacian_error = np.abs(laplacian - expected_laplacian)
    assert np.all(laplacian_error <= LAPLACIAN_TOLERANCE * np.maximum(np.abs(expected_laplacian), natural**2))


def test_derivatives_equal_autodiff(x64, case):
    assert_equal_autodiff(case, np.broadcast_to(np.eye(case.x.shape[1]), (POINTS, *2 * case.x.shape[1:])))


def test_derivatives_in_any_basis_are_those_of_the_same_gradient_and_hessian(x64, case):
    """In the coordinates of x = L y: L' g and tr(L' H L), with another L of any size for each point."""
    rng, d = np.random.default_rng(2), case.x.shape[1]
    basis = 2 * np.eye(d) + rng.uniform(-0.5, 0.5, (POINTS, d, d))
    assert_equal_autodiff(case, basis * 10 ** rng.uniform(-2, 2, (POINTS, 1, 1)))


def test_the_wrong_derivatives_would_be_seen(x64, case):
    """The tolerances are not so wide that the derivatives of a neighbouring theta pass."""
    basis = np.broadcast_to(np.eye(case.x.shape[1]), (POINTS, *2 * case.x.shape[1:]))
    with pytest.raises(AssertionError):
        assert_equal_autodiff(case._replace(theta=case.theta + 1e-3), basis)


def test_many_points_at_once_equal_one_by_one(x64, case):
    rng, d = np.random.default_rng(3), case.x.shape[1]
    frame = Frame(jnp.asarray(rng.standard_normal(d)), jnp.asarray(2 * np.eye(d) + rng.uniform(-0.5, 0.5, (d, d))))
    y = jnp.asarray(rng.standard_normal((POINTS, d)) * 10 ** rng.uniform(-1, 5, (POINTS, 1)))
    together = jax.jit(lambda y: case.surrogate.derivatives_at(case.theta[0], frame, 0.0)(y))(y)
    theta, basis = (jnp.broadcast_to(a, (POINTS, *a.shape)) for a in (case.theta[0], frame.basis))
    one_by_one = case.derivatives(theta, frame.offset + y @ frame.basis.T, basis)
    np.testing.assert_allclose(together.score, one_by_one.score, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(together.laplacian, one_by_one.laplacian, rtol=1e-7, atol=1e-7)


def test_log_densities_equal_the_formula(x64, case):
    """In the user's coordinates, for many points at once, and in the network's; the exponential family has none."""
    surrogate, theta, x = case.surrogate, case.theta[0], case.x[::10]
    if not hasattr(surrogate, "log_prob"):
        pytest.skip("not normalised")

    @jax.jit
    def four_ways(x):
        t, z = surrogate.scale_theta(theta), surrogate.scale_x(x)
        in_network = jax.vmap(surrogate.network_log_prob, (None, 0))(t, z) - jnp.log(surrogate.scale_x.scale).sum()
        formula = jax.vmap(lambda x: case.log_prob(surrogate, theta, x))(x)
        return formula, jax.vmap(surrogate.log_prob, (None, 0))(theta, x), surrogate.log_probs(theta, x), in_network

    formula, *others = four_ways(x)
    for values in others:
        np.testing.assert_allclose(values, formula, rtol=1e-9)


@pytest.mark.parametrize("far", [1e20, 1e150])
def test_derivatives_are_finite_wherever_the_density_is(x64, case, far):
    d = case.x.shape[1]
    corners = np.vstack([np.full(d, far), np.full(d, -far), far * np.eye(d), -far * np.eye(d)])
    x = jnp.asarray(np.vstack([corners, case.x[len(corners) :]]))
    if hasattr(case.surrogate, "log_prob"):
        assert np.isfinite(jax.jit(jax.vmap(case.surrogate.log_prob))(case.theta, x)).all()
    for part in case.derivatives(case.theta, x, jnp.broadcast_to(jnp.eye(d), (POINTS, d, d))):
        assert np.isfinite(part).all()
