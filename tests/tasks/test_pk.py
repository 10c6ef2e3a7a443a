import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision
from nsmbayes.tasks.pk import DOSE, TIMES, log_concentrations

TASK = tasks.get("pk")


def _curves(theta, log_rates):
    """The textbook formula, a patient a row."""
    ka, _, V, _, _ = np.exp(theta)
    k = np.exp(log_rates)[:, None]
    return np.log(DOSE * ka / V * (np.exp(-k * TIMES) - np.exp(-ka * TIMES)) / (ka - k))


def _log_likelihood(theta, x):
    """The integral over eta by an adaptive rule, told where the integrand is."""
    log_k, omega, sigma = theta[1] - theta[2], np.exp(theta[3]), np.exp(theta[4])

    def exponents(eta):
        residuals = (x - _curves(theta, log_k + omega * eta)) / sigma
        return -0.5 * (eta**2 + (residuals**2).sum(axis=1)) - len(x) * np.log(sigma)

    grid = np.linspace(-20, 20, 20_000)
    values = exponents(grid)
    best = values.max()
    seen = grid[values > best - 40]

    def integrand(eta):
        return np.exp(exponents(np.array([eta]))[0] - best)

    ends = seen[0] - 0.01, seen[-1] + 0.01
    total, _ = quad(integrand, *ends, points=[grid[values.argmax()]], epsabs=0, epsrel=1e-10, limit=200)
    return best + np.log(total) - 0.5 * (len(x) + 1) * np.log(2 * np.pi)


@double_precision
def test_curve_solves_the_differential_equations():
    ka, CL, V = 1.5, 2.8, 32.0

    def flow(_, amounts):
        gut, blood = amounts
        return -ka * gut, ka * gut - CL / V * blood

    solved = solve_ivp(flow, (0, 24), (DOSE, 0.0), t_eval=TIMES, rtol=1e-11, atol=1e-11).y[1] / V
    ours = log_concentrations(jnp.asarray(TASK.theta_true), jnp.log(CL / V))
    assert np.allclose(np.exp(ours), solved, rtol=1e-8)


@double_precision
def test_curve_is_smooth_where_both_rates_are_equal():
    theta = jnp.asarray(TASK.theta_true)
    offsets = np.concatenate([[0.0], np.geomspace(1e-12, 1.0, 60), -np.geomspace(1e-12, 1.0, 60)])
    curves = np.asarray(jax.vmap(log_concentrations, (None, 0))(theta, theta[0] + offsets))
    # At equal rates C = D k t exp(-k t) / V. The textbook formula loses digits near them.
    limit = np.log(DOSE) + theta[0] - theta[2] + np.log(TIMES) - np.exp(theta[0]) * TIMES
    assert np.allclose(curves[0], limit, rtol=1e-14)
    far = np.abs(offsets) > 1e-2
    assert np.allclose(curves[far], _curves(TASK.theta_true, TASK.theta_true[0] + offsets[far]), rtol=1e-12)
    # By symmetry of the integral that C is, the derivative in k at k = ka is -t / 2.
    slopes = np.asarray(jax.vmap(jax.jacfwd(log_concentrations, 1), (None, 0))(theta, theta[0] + offsets))
    near = np.abs(offsets) < 1e-9
    assert np.allclose(slopes[near], -np.exp(theta[0]) * TIMES / 2, rtol=1e-7)
    step = 1e-5
    ends = [jax.vmap(log_concentrations, (None, 0))(theta, theta[0] + offsets + s) for s in (-step, step)]
    assert np.allclose(slopes, np.asarray(ends[1] - ends[0]) / (2 * step), rtol=1e-7)


def test_likelihood_against_an_adaptive_rule_over_the_prior():
    # Patients of the same theta, and patients of the true one under a theta that does not describe them.
    theta = TASK.prior.sample((20,), seed=4)
    x = np.concatenate([TASK.simulator(theta, seed=5), TASK.observe(20, seed=6, contamination="none").x])
    theta = np.concatenate([theta, theta])
    with jax.enable_x64(True):
        ours = np.asarray(jax.jit(jax.vmap(TASK.log_prob))(theta, x))
    expected = [_log_likelihood(*pair) for pair in zip(theta, x, strict=True)]
    assert np.abs(ours - expected).max() < 1e-8


@pytest.mark.parametrize("contamination", [name for name in TASK.contaminations if name != "none"])
def test_likelihood_of_outliers(contamination):
    obs = TASK.observe(30, seed=2, contamination=contamination)
    outliers = obs.x[obs.is_outlier]
    with jax.enable_x64(True):
        ours = np.asarray(jax.vmap(TASK.log_prob, (None, 0))(jnp.asarray(TASK.theta_true), outliers))
    expected = [_log_likelihood(TASK.theta_true, x) for x in outliers]
    assert np.allclose(ours, expected, rtol=1e-8)


@double_precision
def test_gradient_in_theta_and_x_against_finite_differences():
    theta = np.concatenate([TASK.theta_true[None], TASK.prior.sample((9,), seed=7)])
    x = TASK.simulator(theta, seed=8)
    value = jax.jit(jax.vmap(TASK.log_prob))
    gradients = jax.jit(jax.vmap(jax.grad(TASK.log_prob, (0, 1))))(theta, x)
    for i, step in enumerate(1e-5 * np.eye(5)):
        in_theta = (value(theta + step, x) - value(theta - step, x)) / 2e-5
        in_x = (value(theta, x + step) - value(theta, x - step)) / 2e-5
        for gradient, difference in zip(gradients, (in_theta, in_x), strict=True):
            assert np.allclose(gradient[:, i], difference, rtol=1e-5, atol=1e-5)


@double_precision
def test_likelihood_is_finite_over_thrice_the_prior():
    theta = TASK.prior.mean + 3 * (TASK.prior.sample((500,), seed=9) - TASK.prior.mean)
    x = TASK.observe(500, seed=10).x
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(TASK.log_prob)))(theta, x)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


def test_simulator_has_the_moments_of_the_likelihood():
    # Means and second moments of x under the exact density, from the integral over eta (Gauss-Hermite) and the noise.
    # Ten means and variances, each beyond 4.5 standard errors for one seed in 150,000.
    x = TASK.simulator(np.tile(TASK.theta_true, (40_000, 1)), seed=11)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    log_k, omega, sigma = TASK.theta_true[1] - TASK.theta_true[2], *np.exp(TASK.theta_true[3:])
    curves = _curves(TASK.theta_true, log_k + omega * nodes)
    weights = weights / weights.sum()
    mean = weights @ curves
    variance = weights @ (curves - mean) ** 2 + sigma**2

    def largest_z(mean, variance):
        squares = (x - mean) ** 2
        in_mean = (x.mean(axis=0) - mean) / (x.std(axis=0) / np.sqrt(len(x)))
        in_variance = (squares.mean(axis=0) - variance) / (squares.std(axis=0) / np.sqrt(len(x)))
        return max(np.abs(in_mean).max(), np.abs(in_variance).max())

    assert largest_z(mean, variance) < 4.5
    assert largest_z(mean, variance - 0.1 * sigma**2) > 4.5, "a noise a twentieth too large is noticed"


def test_contaminations_are_what_they_say():
    changes = {"wrong-units": np.log(1000), "double-dose": np.log(2)}
    for name, shift in changes.items():
        obs = TASK.observe(50, seed=1, contamination=name)
        assert np.allclose((obs.x - obs.clean)[obs.is_outlier], shift)
    obs = TASK.observe(50, seed=1, contamination="swapped")
    assert obs.is_outlier.sum() == 5
    assert np.array_equal(obs.x[obs.is_outlier], obs.clean[obs.is_outlier, ::-1])
