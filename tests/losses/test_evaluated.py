"""Our losses against brute force: derivatives by autodiff, noise by Monte Carlo, chunks by none."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import nsmbayes as nsm
from nsmbayes.losses import NLELoss, NSMSetting, evaluated
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import Density, Derivatives, Frame, Standardiser, init_mixture_density_network
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.weights import Weighting


def mdn(d_x, d_theta, seed=0):
    rng = np.random.default_rng(seed)
    scales = [
        Standardiser(jnp.asarray(rng.standard_normal(d)), jnp.asarray(rng.uniform(0.5, 2, d)), asinh=False)
        for d in (d_x, d_theta)
    ]
    network = init_mixture_density_network(
        jax.random.key(seed), *scales, components=3, hidden=(8,), floor=0.3, ceiling=5.0
    )
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if isinstance(a, jax.Array) else a, network)


each = eqx.filter_jit(lambda loss, theta: loss.each(theta))
total = eqx.filter_jit(lambda loss, theta: loss(theta))


def data(n, d_x):
    x = np.random.default_rng(1).standard_normal((n, d_x)) * np.arange(1, d_x + 1)
    x[: n // 10] += 30
    return x


def nsm_loss(surrogate, weight, centre, frame, x, noise_levels):
    return NSMSetting(surrogate, Weighting(weight, centre), frame, noise_levels).loss(x)


def whitened(x):
    centre = fit_location_scatter(x)
    return centre, Frame(jnp.asarray(centre.location), jnp.asarray(centre.factor))


@pytest.mark.parametrize(("d_x", "d_theta"), [(1, 2), (3, 2)])
def test_single_level_loss_equals_its_definition(x64, d_x, d_theta):
    surrogate, x, weight = mdn(d_x, d_theta), data(20, d_x), nsm.weights.IMQ(zeta=2.0)
    centre, frame = whitened(x)

    def by_definition(theta, x):
        def log_q(y):
            return surrogate.log_prob(theta, frame.offset + frame.basis @ y)

        def flow(y):
            return (1 + y @ y) ** -1.0 * jax.grad(log_q)(y)  # w^2 grad log q, w^2 = (1 + |y|^2)^(-2 / zeta)

        y = jnp.linalg.solve(frame.basis, x - frame.offset)
        score = jax.grad(log_q)(y)
        return (1 + y @ y) ** -1.0 * (score @ score) + 2 * jnp.trace(jax.jacfwd(flow)(y))

    loss = nsm_loss(surrogate, weight, centre, frame, x, (0.0,))
    thetas = jnp.asarray(np.random.default_rng(2).standard_normal((5, d_theta)))
    expected = jax.jit(jax.vmap(jax.vmap(by_definition, (None, 0)), (0, None)))(thetas, jnp.asarray(x))
    np.testing.assert_allclose(jax.jit(jax.vmap(loss.each))(thetas), expected, rtol=1e-8, atol=1e-10)


def test_noisy_level_equals_monte_carlo_over_noise(x64):
    """One level h = 0.7 in one dimension: 400,000 noisy copies, derivatives of the smoothed density by autodiff."""
    surrogate, x, h = mdn(1, 2), data(12, 1), 0.7
    centre, frame = whitened(x)
    loss = nsm_loss(surrogate, nsm.weights.IMQ(zeta=2.0), centre, frame, x, (h,))
    theta = jnp.array([0.3, -0.4])
    y = (x[:, 0] - centre.location[0]) / centre.factor[0, 0]
    noise = np.random.default_rng(3).standard_normal(400_000)
    mixture = surrogate.mixture(surrogate.scale_theta(theta))
    mean = (mixture.means[:, 0] * surrogate.scale_x.scale + surrogate.scale_x.centre - frame.offset) / frame.basis[0, 0]
    variance = mixture.covariances[:, 0, 0] * (surrogate.scale_x.scale / frame.basis[0, 0]) ** 2 + h**2

    def log_q(y):
        return jax.nn.logsumexp(mixture.log_weights - 0.5 * jnp.log(variance) - 0.5 * (y - mean) ** 2 / variance)

    def loss_at(y):
        def w2(y):
            return (1 + y**2 / (1 + h**2)) ** -1.0

        s = jax.grad(log_q)(y)
        return w2(y) * s**2 + 2 * jax.grad(lambda y: w2(y) * jax.grad(log_q)(y))(y)

    mean_at = jax.jit(lambda y: jax.vmap(loss_at)(y + h * jnp.asarray(noise)).mean())
    expected = [h**2 * float(mean_at(yi)) for yi in y]
    np.testing.assert_allclose(each(loss, theta), expected, rtol=0.02, atol=2e-3)


def test_reach_counts_observations_by_their_distance_before_noise(x64):
    surrogate, x = mdn(2, 2), data(40, 2)
    x[:3] += 100 * np.array([[1.0], [0.1], [0.08]])
    centre, frame = whitened(x)
    theta, levels = jnp.array([0.3, -0.4]), (0.5, 2.0)
    plain, reaching = (
        nsm_loss(surrogate, nsm.weights.PlateauIMQ(2.0, 1.0, cutoff_radius=reach), centre, frame, x, levels)
        for reach in (None, 3.0)
    )
    distance = np.linalg.norm(np.linalg.solve(centre.factor, (x - centre.location).T), axis=0)
    expected = (1 + np.maximum(distance - 3, 0) ** 2) ** -2.0
    assert expected.min() < 1e-3 < 0.9 < np.median(expected)
    np.testing.assert_allclose(each(reaching, theta), expected * each(plain, theta), rtol=1e-12)
    np.testing.assert_allclose(total(reaching, theta), each(reaching, theta).sum(), rtol=1e-10)
    without_noise = [
        nsm_loss(surrogate, nsm.weights.PlateauIMQ(2.0, 1.0, cutoff_radius=reach), centre, frame, x, (0.0,))
        for reach in (None, 3.0)
    ]
    np.testing.assert_array_equal(*(each(loss, theta) for loss in without_noise))


class Normal(Density):
    """x ~ N(theta_1, exp(theta_2)^2): the family whose likelihood is known."""

    smoothable: ClassVar[bool] = True
    unit: Array

    def _mixture(self, theta):
        return GaussianMixture(jnp.zeros(1), theta[:1, None], jnp.exp(2 * theta[1]).reshape(1, 1, 1))

    def network_log_prob(self, t, z):
        return self._mixture(t).smooth(0.0).log_prob(z[None])[0]

    def log_prob(self, theta, x):
        return self.network_log_prob(theta, x)

    def derivatives(self, theta, x, basis):
        score, laplacian = self.derivatives_at(theta, Frame(jnp.zeros(1), basis), 0.0)(x[None] / basis[0, 0])
        return Derivatives(score[0], laplacian[0])

    def derivatives_at(self, theta, frame, h):
        return self._mixture(theta).pull_back(frame.offset, frame.basis).smooth(h).derivatives


def test_without_a_weight_many_levels_are_the_likelihood(x64):
    """de Bruijn's identity in numbers: the summed loss is n KL + constant, so it equals -log likelihood + constant."""
    x = 3 + 2 * np.random.default_rng(4).standard_normal((200, 1))
    centre, frame = whitened(x)
    surrogate = Normal(jnp.ones(1))
    levels = tuple(0.02 * 1.5**i for i in range(22))
    loss = nsm_loss(surrogate, nsm.weights.Constant(), centre, frame, x, levels)
    likelihood = NLELoss(surrogate, jnp.asarray(x))
    minimum = jnp.array([x.mean(), np.log(x.std())])
    for step in ([0.3, 0.0], [-0.3, 0.0], [0.0, 0.15], [0.0, -0.15], [0.2, 0.1]):
        theta = minimum + jnp.array(step)
        expected = float(total(likelihood, theta) - total(likelihood, minimum))
        assert float(total(loss, theta) - total(loss, minimum)) == pytest.approx(expected, rel=0.05)


def test_chunks_change_nothing(x64, monkeypatch):
    surrogate, x = mdn(2, 2), data(50, 2)
    centre, frame = whitened(x)
    theta = jnp.array([0.1, 0.2])
    losses = [nsm_loss(surrogate, nsm.weights.IMQ(), centre, frame, x, (0.2, 0.4)), NLELoss(surrogate, jnp.asarray(x))]

    def values():
        return [jax.jit(lambda t, loss=loss: (loss.each(t), *jax.value_and_grad(loss)(t)))(theta) for loss in losses]

    whole = values()
    monkeypatch.setattr(evaluated, "_CHUNK", 16)
    for (rows, value, gradient), (chunked_rows, chunked_value, chunked_gradient) in zip(whole, values(), strict=True):
        np.testing.assert_allclose(chunked_rows, rows, rtol=1e-12)
        np.testing.assert_allclose(rows.sum(), value, rtol=1e-12)
        np.testing.assert_allclose(chunked_value, value, rtol=1e-12)
        np.testing.assert_allclose(chunked_gradient, gradient, rtol=1e-9)


def test_a_far_observation_is_harmless_at_every_level(x64):
    surrogate, x = mdn(1, 2), data(30, 1)
    theta, other = jnp.array([0.1, 0.2]), jnp.array([-1.0, 1.0])
    for weight, bounded in ((nsm.weights.IMQ(zeta=2.0), True), (nsm.weights.Constant(), False)):
        changes = []
        for far in (1e3, 1e6):
            x[0] = far
            centre, frame = whitened(x)
            loss = nsm_loss(surrogate, weight, centre, frame, x, (0.1, 0.4, 1.6))
            changes.append(abs(float(each(loss, theta)[0] - each(loss, other)[0])))
        assert (changes[1] < 2 * changes[0] + 1) == bounded
