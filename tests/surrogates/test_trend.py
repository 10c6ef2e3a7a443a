"""A network around a linear trend: its density by change of variables, its bounds, its training and its file."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import data, mdn

import nsmbayes as nsm
from nsmbayes.robustness.bounds.mixture import mixture_growth
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import Frame, Scalers, Standardiser, Trend, fit_trend, trend_alone
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.training import TrainingSettings, fit_density
from nsmbayes.training.loop import held_out_rows

D = 6


def trend_of(d_x=D, d_theta=2, seed=0):
    rng = np.random.default_rng(seed)
    L = np.tril(0.4 * rng.standard_normal((d_x, d_x)), -1) + np.diag(rng.uniform(0.4, 1.5, d_x))
    parts = rng.standard_normal(d_x), rng.standard_normal((d_x, d_theta)), L, np.linalg.inv(L), 10.0
    with jax.enable_x64(True):
        return Trend(*map(jnp.asarray, parts))


def pair(ensemble=1):
    """The network of r, and the same around a trend."""
    plain = mdn(D, factor="precision", ensemble=ensemble)
    return plain, replace(plain, trend=trend_of())


def points(d, n=20):
    return jnp.asarray(2 * np.random.default_rng(3).standard_normal((n, d)))


def by_change_of_variables(plain, trend, theta, x):
    """log q(x | theta) from the density of r alone: x = centre + scale (trend + L r)."""
    t = (theta - plain.scale_theta.centre) / plain.scale_theta.scale
    at = trend.intercept + trend.slope @ (10 * jnp.tanh(t / 10))

    def to_x(r):
        return plain.scale_x.centre + plain.scale_x.scale * (at + trend.factor @ r)

    r = jnp.linalg.solve(jax.jacobian(to_x)(jnp.zeros(D)), x - to_x(jnp.zeros(D)))
    return plain.network_log_prob(t, r) - jnp.linalg.slogdet(jax.jacobian(to_x)(r))[1]


@pytest.mark.parametrize("ensemble", [1, 2])
def test_density_is_that_of_the_network_by_change_of_variables(x64, ensemble):
    plain, around = pair(ensemble)

    @jax.jit
    def in_four_ways(theta, x):
        mixture = around.mixture(around.scale_theta(theta)).smooth(0.0).log_prob(around.scale_x(x))
        expected = jax.vmap(lambda x: by_change_of_variables(plain, around.trend, theta, x))(x)
        return (
            expected,
            around.log_probs(theta, x),
            jax.vmap(around.log_prob, (None, 0))(theta, x),
            mixture - jnp.log(around.scale_x.scale).sum(),
        )

    for theta in (*points(2, 3), jnp.array([300.0, -1e6])):
        expected, *found = in_four_ways(theta, points(D))
        for each in found:
            np.testing.assert_allclose(each, expected, rtol=1e-9)


@pytest.mark.parametrize("ensemble", [1, 2])
def test_moments_are_those_of_the_network_moved(x64, ensemble):
    plain, around = pair(ensemble)
    theta, trend = jnp.array([0.3, -1.0]), around.trend
    mean, covariance = plain.mixture(plain.scale_theta(theta)).moments()
    scale = around.scale_x.scale
    found = around.moments(theta)
    np.testing.assert_allclose(
        found.mean, around.scale_x.centre + scale * (trend.at(around.scale_theta(theta)) + trend.factor @ mean)
    )
    B = scale[:, None] * trend.factor
    np.testing.assert_allclose(found.covariance, B @ covariance @ B.T)


def test_derivatives_are_those_of_the_density(x64):
    around = pair()[1]
    theta, basis = jnp.array([0.3, -1.0]), jnp.asarray(np.random.default_rng(5).standard_normal((D, D)))
    derivatives = jax.jit(lambda x: around.derivatives(theta, x, basis))
    gradient = jax.jit(jax.grad(lambda x: around.log_prob(theta, x)))
    hessian = jax.jit(jax.hessian(lambda x: around.log_prob(theta, x)))
    for x in points(D, 4):
        found = derivatives(x)
        np.testing.assert_allclose(found.score, basis.T @ gradient(x), rtol=1e-8)
        np.testing.assert_allclose(found.laplacian, jnp.trace(basis.T @ hessian(x) @ basis), rtol=1e-8)


def test_moments_of_a_mixture_are_sums_over_its_components(x64):
    rng = np.random.default_rng(0)
    weights, means, roots = rng.dirichlet(np.ones(4)), rng.standard_normal((4, 3)), rng.standard_normal((4, 3, 3))
    covariances = roots @ roots.transpose(0, 2, 1)
    found = GaussianMixture(*map(jnp.asarray, (np.log(weights), means, covariances))).moments()
    mean = sum(w * m for w, m in zip(weights, means, strict=True))
    second = sum(w * (S + np.outer(m, m)) for w, m, S in zip(weights, means, covariances, strict=True))
    np.testing.assert_allclose(found.mean, mean)
    np.testing.assert_allclose(found.covariance, second - np.outer(mean, mean))


@pytest.mark.parametrize(("ensemble", "size"), [(1, 1e-5), (2, 1.0), (1, 1e5)])
def test_bounds_hold_around_a_trend_whatever_theta(x64, ensemble, size):
    """Means and eigenvalues in the coordinates of a certificate, and the score far out.

    `size` is that of the noise around the trend: bounds that forgot it are exceeded if it is very small or large.
    """
    plain, around = pair(ensemble)
    trend = around.trend
    trend = replace(trend, slope=5 * trend.slope, factor=size * trend.factor, inverse=trend.inverse / size)
    around = replace(around, trend=trend)
    centre = fit_location_scatter(data(D))
    origin, frame = np.asarray(centre.location), Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))
    growth = mixture_growth(around, frame, origin, 0.0)
    rng = np.random.default_rng(1)
    theta = jnp.asarray(rng.standard_normal((400, 2)) * 10 ** rng.uniform(-1, 4, (400, 1)))
    basis = frame.basis / around.scale_x.scale[:, None]

    def mixture(theta):
        return around.mixture(around.scale_theta(theta)).pull_back(around.scale_x(frame.offset), basis)

    mixtures = jax.jit(jax.vmap(mixture))(theta)
    eigenvalues = np.linalg.eigvalsh(np.asarray(mixtures.covariances))
    assert growth.constants["lambda_min"] <= eigenvalues.min()
    assert eigenvalues.max() <= growth.constants["lambda_max"]
    reached = np.linalg.norm(mixtures.means, axis=-1).max()
    assert reached <= growth.constants["mean_reach"] < 50 * reached
    if size == 1:  # a bound that forgot the slope would be exceeded
        assert reached > mixture_growth(plain, frame, origin, 0.0).constants["mean_reach"]
    y = 1e3 * size * rng.standard_normal((100, D))
    score = jax.jit(lambda theta: around.derivatives_at(theta, frame, 0.0)(jnp.asarray(y)).score)
    bound = np.polynomial.polynomial.polyval(growth.a + growth.b * np.linalg.norm(y, axis=1), growth.score)
    for each in theta[::80]:
        assert (np.linalg.norm(score(each), axis=1) <= bound).all()


def gaussian_location(m, d_theta=4, seed=0):
    """Parameters, six columns that are linear in them with correlated Gaussian noise, and the exact -log density."""
    rng = np.random.default_rng(seed)
    A, L = rng.standard_normal((D, d_theta)) / 2, trend_of(seed=1).factor
    t, e = rng.standard_normal((m, d_theta)), rng.standard_normal((m, D))
    log_det = np.log(np.diagonal(L)).sum()
    return t, t @ A.T + e @ np.asarray(L).T, (e**2).sum(axis=1) / 2 + log_det + D / 2 * np.log(2 * np.pi)


def test_the_trend_of_linear_data_is_their_regression():
    t, z, exact = gaussian_location(20_000)
    trend = fit_trend(t, z)
    factor, inverse = np.asarray(trend.factor), np.asarray(trend.inverse)
    np.testing.assert_allclose(np.linalg.lstsq(t, z, rcond=None)[0].T, trend.slope, atol=0.05)
    np.testing.assert_allclose(factor @ inverse, np.eye(D), atol=1e-12)
    np.testing.assert_allclose(factor, trend_of(seed=1).factor, atol=0.06)
    np.testing.assert_allclose(trend.losses(t, z).mean(), exact.mean(), atol=0.05)


def test_columns_that_depend_on_each_other_have_a_trend():
    t, z, _ = gaussian_location(500)
    z = np.column_stack([z, z[:, 0], np.ones(500)])
    trend = fit_trend(t, z)
    assert np.isfinite(trend.losses(t, z)).all()
    assert all(np.isfinite(part).all() for part in jax.tree.leaves(trend))


SETTINGS = TrainingSettings(learning_rate=5e-3, batch_size=128, max_epochs=30, weight_decay=0.0, schedule="cosine")


def untrained(d_theta, factor="precision"):
    scalers = Scalers(*(Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False) for d in (D, d_theta)))
    return nsm.MDN(components=2, hidden=(16, 16), ensemble=1, factor=factor).build(jax.random.key(0), scalers)


def test_a_linear_model_is_trained_around_its_trend_and_better_for_it(monkeypatch):
    t, z, exact = gaussian_location(6000)
    some, options = (t[:4000], z[:4000]), {"settings": SETTINGS, "key": jax.random.key(1), "progress": False}
    trained, history = fit_density(untrained(4), *some, **options)
    assert trained.components == 1  # the trend alone, which is what made the data
    worse = history.best_validation_loss + 0.5
    monkeypatch.setattr(Trend, "losses", lambda *_: np.full(800, worse))  # as if noise were not Gaussian
    around, _ = fit_density(untrained(4), *some, **options)
    monkeypatch.setattr(Trend, "losses", lambda *_: np.full(800, 1e3))  # as if the trend were much worse than a network
    plain, alone = fit_density(untrained(4), *some, **options)
    assert plain.trend is None
    assert history.best_validation_loss < alone.best_validation_loss
    used = np.setdiff1d(np.arange(4000), held_out_rows(options["key"], 4000, SETTINGS))  # no held-out simulation
    for network in (trained, around):
        kept = zip(jax.tree.leaves(network.trend), jax.tree.leaves(fit_trend(t[used], z[used])), strict=True)
        assert all(np.allclose(found, fitted, rtol=1e-6, atol=1e-9) for found, fitted in kept)  # it was not trained

    def excess(network):
        held_out = jnp.asarray(t[4000:], jnp.float32), jnp.asarray(z[4000:], jnp.float32)
        network = jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float32) if eqx.is_array(a) else a, network)
        return float(-jax.jit(jax.vmap(network.network_log_prob))(*held_out).mean()) - exact[4000:].mean()

    assert excess(trained) < 0.02
    assert excess(trained) < excess(around) < 0.08
    assert excess(around) < 0.5 * excess(plain)


def test_a_trend_alone_is_a_gaussian_around_it(x64):
    """Also where its spread is not the geometric mean of the network's bounds."""
    trend = trend_of()
    alone = trend_alone(mdn(D, factor="precision"), trend)
    theta, x = jnp.array([0.3, -1.0]), points(D)
    scale, t = alone.scale_x.scale, alone.scale_theta(theta)
    mean, factor = alone.scale_x.centre + scale * trend.at(t), scale[:, None] * trend.factor
    expected = jax.scipy.stats.multivariate_normal.logpdf(x, mean, factor @ factor.T)
    np.testing.assert_allclose(alone.log_probs(theta, x), expected, rtol=1e-6)
    t, z = np.asarray(points(2)), np.asarray(points(D))
    found = -np.asarray(jax.vmap(alone.network_log_prob)(jnp.asarray(t), jnp.asarray(z)))
    np.testing.assert_allclose(trend.losses(t, z), found, rtol=1e-6)


def test_a_trend_is_linear_over_the_bulk_of_a_prior_and_bounded_far_away(x64):
    trend = fit_trend(*gaussian_location(500)[:2])
    linear = trend.intercept + trend.slope @ jnp.full(4, 3.0)
    np.testing.assert_allclose(trend.at(jnp.full(4, 3.0)), linear, atol=0.01)
    assert np.isfinite(trend.at(jnp.full(4, 1e300))).all()


def test_only_factors_of_the_precision_have_a_trend():
    t, z, _ = gaussian_location(400)
    options = {"settings": replace(SETTINGS, max_epochs=1), "key": jax.random.key(1), "progress": False}
    assert fit_density(untrained(4), t, z, **options)[0].trend is not None
    assert fit_density(untrained(4, "covariance"), t, z, **options)[0].trend is None


@pytest.mark.parametrize("curved", [False, True])
def test_a_network_with_a_trend_is_saved_and_loaded(tmp_path, curved):
    """The trend alone where x is linear in theta, and a network around it where it is not quite."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((1000, 2))
    noise = np.exp(0.4 * theta[:, :1]) if curved else 1.0
    x = theta @ rng.standard_normal((2, D)) + noise * rng.standard_normal((1000, D))
    surrogate = nsm.MDN(components=2, hidden=(8,), ensemble=1)
    method = nsm.NLE(nsm.GaussianPrior(np.zeros(2), np.eye(2)), surrogate=surrogate)
    settings = replace(SETTINGS, max_epochs=20 if curved else 2)
    method.append_simulations(theta, x).train(0, settings=settings, progress=False)
    assert method.density.trend is not None
    assert (method.density.components == 1) != curved
    method.save(tmp_path / "model")
    loaded = nsm.load(tmp_path / "model")
    with jax.enable_x64(True):
        found, expected = (q.density.log_probs(jnp.asarray(theta[0]), jnp.asarray(x)) for q in (loaded, method))
    np.testing.assert_array_equal(found, expected)
