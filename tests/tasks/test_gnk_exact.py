import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision
from nsmbayes.tasks.gnk_exact import (
    laplacian,
    log_prob,
    quantile,
    score,
    smoothed_derivatives,
    smoothed_log_prob,
    standard_normal_quantile,
)

TASK = tasks.get("gnk")
GRADIENT = jax.grad(log_prob, 1)
FAR = [-1e6, -1e3, 1e3, 1e6]


@functools.cache
def _over(function):
    """`function` of one point at every row of theta and every entry of the same row of x."""
    vectorised = jax.jit(jax.vmap(jax.vmap(function, (None, 0))))
    return double_precision(lambda theta, x: np.asarray(vectorised(theta, x)))


def _points(thetas=40):
    """Parameters from the prior, and for each of them points in the bulk, in the tails and far beyond."""
    theta = np.concatenate([TASK.theta_true[None], TASK.prior.sample((thetas - 1,), seed=3)])
    bulk = _over(quantile)(theta, np.tile(np.linspace(-6, 6, 25), (thetas, 1)))
    return theta, np.concatenate([bulk, np.tile(FAR, (thetas, 1))], axis=1)


def _close(actual, expected, rtol):
    scale = np.abs(expected) + 1e-3 * np.median(np.abs(expected), axis=1, keepdims=True)
    return (np.abs(actual - expected) / scale).max() < rtol


def test_round_trip_over_thrice_the_prior():
    theta = TASK.prior.mean + 3 * (TASK.prior.sample((20_000,), seed=0) - TASK.prior.mean)
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (len(theta), 1)) * 10 ** rng.uniform(-12, 12, (len(theta), 1))
    back = _over(quantile)(theta, _over(standard_normal_quantile)(theta, x))
    # x = A + ... cannot come back more exactly than A is rounded.
    assert (np.abs(back - x) / np.maximum(np.abs(x), np.abs(theta[:, :1]))).max() < 1e-12


@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_round_trip_of_few_points_at_once(size):
    # Compiled for few points the same formulas round otherwise.
    theta = np.repeat(TASK.prior.sample((40,), seed=6), 500, axis=0)
    u = np.tile(np.linspace(-3, 3, 500), 40)
    rows = len(u) // size * size
    with jax.enable_x64(True):
        x = jax.vmap(quantile)(jnp.asarray(theta), jnp.asarray(u))[:rows].reshape(-1, size)
        groups = jnp.asarray(theta)[:rows].reshape(-1, size, 4)
        inverse = jax.vmap(standard_normal_quantile)
        back = jax.jit(lambda groups, x: jax.lax.map(lambda one: inverse(*one), (groups, x)))(groups, x)
    assert np.abs(np.asarray(back).ravel() - u[:rows]).max() < 1e-10


def test_round_trip_of_u():
    theta, _ = _points()
    u = np.tile([-30.0, -1.0, -1e-6, 0.0, 1e-3, 2.0, 30.0], (len(theta), 1))
    back = _over(standard_normal_quantile)(theta, _over(quantile)(theta, u))
    assert np.allclose(back, u, rtol=1e-10, atol=1e-13)


@double_precision
def test_median_is_the_location_and_has_derivatives():
    theta = jnp.asarray(TASK.theta_true)
    assert float(standard_normal_quantile(theta, theta[0])) == 0.0
    assert float(jax.jit(jax.grad(standard_normal_quantile, 1))(theta, theta[0])) == pytest.approx(
        np.exp(-0.5), rel=1e-12
    )


def test_without_skewness_and_tails_it_is_the_normal_distribution():
    theta = np.array([[1.0, 0.5, 0.0, -45.0]])
    x = np.array([[-40.0, -1.0, 1.0, 2.5, 1e3]])
    assert np.allclose(_over(log_prob)(theta, x), stats.norm(1.0, np.exp(0.5)).logpdf(x), rtol=1e-12)
    assert np.allclose(_over(score)(theta, x), -(x - 1.0) / np.exp(1.0), rtol=1e-12)
    assert np.allclose(_over(laplacian)(theta, x), -np.exp(-1.0), rtol=1e-12)


def test_density_integrates_to_one():
    # After x = A + sinh(s) the trapezoidal rule converges faster than any power of the spacing.
    theta, _ = _points()
    s = np.linspace(-25, 25, 20_001)
    x = theta[:, :1] + np.sinh(s)
    density = np.exp(_over(log_prob)(theta, x)) * np.cosh(s)
    assert np.allclose(np.trapezoid(density, s, axis=1), 1.0, rtol=1e-9)


def test_distribution_function_is_that_of_the_simulator():
    # Under the right parameters u is standard normal, and a Kolmogorov-Smirnov test at level 0.001 raises a
    # false alarm for one seed in a thousand. Under parameters that are a little wrong it must raise one.
    x = TASK.simulator(np.tile(TASK.theta_true, (20_000, 1)), seed=2).T

    def p_value(theta):
        return stats.kstest(_over(standard_normal_quantile)(theta[None], x)[0], "norm").pvalue

    assert p_value(TASK.theta_true) > 1e-3
    for wrong in 0.2 * np.eye(4):
        assert p_value(TASK.theta_true + wrong) < 1e-3


def test_score_and_laplacian_against_autodiff():
    theta, x = _points()
    assert _close(_over(score)(theta, x), _over(GRADIENT)(theta, x), rtol=1e-9)
    assert _close(_over(laplacian)(theta, x), _over(jax.grad(GRADIENT, 1))(theta, x), rtol=1e-8)


def test_score_and_laplacian_against_finite_differences():
    theta, x = _points()
    h = 1e-5 * (np.exp(theta[:, 1:2]) + np.abs(x - theta[:, :1]))
    down, up = (_over(log_prob)(theta, x + step) for step in (-h, h))
    # In the scale of the points themselves, since derivatives pass through zero.
    assert np.allclose(_over(score)(theta, x) * h, (up - down) / 2, rtol=1e-5, atol=1e-9)
    before, after = (_over(score)(theta, x + step) for step in (-h, h))
    assert np.allclose(_over(laplacian)(theta, x) * h**2, (after - before) * h / 2, rtol=1e-5, atol=1e-13)


def test_gradient_in_theta_against_finite_differences():
    theta, x = _points()
    gradient = _over(jax.grad(log_prob, 0))(theta, x)
    for i, step in enumerate(1e-5 * np.eye(4)):
        up, down = (_over(log_prob)(theta + sign * step, x) for sign in (1, -1))
        assert np.allclose(gradient[..., i], (up - down) / 2e-5, rtol=1e-5, atol=1e-5 * np.abs(up) + 1e-8)


def _smooth_points():
    """Parameters, points in their bulk, and noise from a twentieth of the scale of the distribution to ten times it."""
    theta = np.concatenate([TASK.theta_true[None], TASK.prior.sample((5,), seed=5)])
    x = _over(quantile)(theta, np.tile([-2.0, -0.5, 0.0, 1.0, 2.0], (len(theta), 1)))
    return [(theta, x, factor * np.exp(theta[:, 1])) for factor in (0.05, 0.5, 10.0)]


@functools.cache
def _smoothed(function):
    vectorised = jax.jit(jax.vmap(jax.vmap(function, (None, 0, None))))
    return double_precision(lambda *points: np.asarray(vectorised(*points)))


def test_smoothed_derivatives_against_autodiff():
    first, second = jax.grad(smoothed_log_prob, 1), jax.grad(jax.grad(smoothed_log_prob, 1), 1)
    both = _smoothed(lambda theta, x, h: jnp.stack([h * first(theta, x, h), h**2 * second(theta, x, h)]))
    for points in _smooth_points():
        ours = _smoothed(lambda *point: jnp.stack(smoothed_derivatives(*point)))(*points)
        assert np.allclose(ours, both(*points), rtol=1e-8, atol=1e-9)


def test_smoothed_density_of_a_normal_distribution():
    theta, h = np.array([[1.0, 0.5, 0.0, -45.0]]), np.array([0.7])
    x = np.array([[-3.0, 0.2, 1.0, 4.0]])
    sd = np.sqrt(np.exp(1.0) + 0.49)
    assert np.allclose(_smoothed(smoothed_log_prob)(theta, x, h), stats.norm(1.0, sd).logpdf(x), rtol=1e-12)


def test_smoothed_density_is_the_convolution_of_the_exact_one():
    theta, x, h = _smooth_points()[1]
    e = np.linspace(-9, 9, 1001)
    unsmoothed = np.stack([np.exp(_over(log_prob)(theta, x - h[:, None] * one)) for one in e])
    convolved = np.trapezoid(unsmoothed * stats.norm.pdf(e)[:, None, None], e, axis=0)
    assert np.allclose(np.exp(_smoothed(smoothed_log_prob)(theta, x, h)), convolved, rtol=1e-8)
