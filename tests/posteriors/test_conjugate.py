import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.reference import nsm_loss_by_autodiff

import nsmbayes as nsm
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.losses.statistics import FamilyLoss, total_loss
from nsmbayes.posteriors import ConjugatePosterior
from nsmbayes.robustness.certify import CERTIFIERS

WEIGHTS = [
    nsm.weights.IMQ(zeta=2.0),
    nsm.weights.IMQ(zeta=0.7),
    nsm.weights.SquaredExponential(),
    nsm.weights.PlateauIMQ(),
    nsm.weights.Constant(),
]
CASES = [(1, 4, "robust", True), (1, 4, "zscore", False), (3, 2, "robust-asinh", True), (3, 2, "robust", False)]


def data(n, d_x, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d_x)) @ rng.standard_normal((d_x, d_x)) + 1
    x[: n // 10] -= 50
    return x


def brute_force_log_density(posterior, theta):
    """log prior - beta n L_NSM, the loss by autodiff of the surrogate."""
    loss, (location, scatter) = posterior.statistics.loss, posterior.location_scatter
    with jax.enable_x64(True):
        value = jax.jit(
            jax.vmap(
                lambda t: nsm_loss_by_autodiff(
                    loss.family, loss.weight, jnp.asarray(location), jnp.asarray(scatter), loss.basis, t, posterior.x
                )
            )
        )(jnp.asarray(theta))
    return posterior.prior.log_prob(theta) - posterior.beta * posterior.n * np.asarray(value)


def unevenness(posterior, log_prob, theta):
    """How far log_prob - brute force is from a constant, relative to the range of the brute-force values."""
    expected = brute_force_log_density(posterior, theta)
    return np.ptp(log_prob(theta) - expected) / np.ptp(expected)


@pytest.mark.parametrize("weight", WEIGHTS, ids=repr)
@pytest.mark.parametrize(("d_x", "d_theta", "scaling", "whiten"), CASES)
def test_closed_form_is_the_generalised_posterior(random_method, d_x, d_theta, scaling, whiten, weight):
    method = random_method(d_x, d_theta, scaling=scaling, whiten=whiten, weight=weight)
    posterior = method.build_posterior(data(40, d_x), beta=0.7)
    theta = np.random.default_rng(4).standard_normal((1000, d_theta)) * 3
    assert unevenness(posterior, posterior.log_prob, theta) < 1e-6


def test_the_sign_of_the_papers_main_text_fails_the_same_test(random_method):
    """Proposition 1 as printed subtracts the divergence term; the posterior it gives is not the generalised one."""
    posterior = random_method(1, 4).build_posterior(data(40, 1), beta=0.7)
    plus = posterior.statistics.total.B
    no_divergence = sum_without_divergence(posterior)
    minus = no_divergence - (plus - no_divergence)
    mean, precision = gaussian_posterior(
        posterior.prior, Quadratic(posterior.statistics.total.A, minus, np.zeros(())), posterior.beta
    )
    theta = np.random.default_rng(4).standard_normal((1000, 4)) * 3

    def log_prob(theta):
        return -0.5 * np.einsum("ni,ij,nj->n", theta - mean, precision, theta - mean)

    assert unevenness(posterior, log_prob, theta) > 1e-3


def sum_without_divergence(posterior):
    loss = posterior.statistics.loss
    with jax.enable_x64(True):
        family = jax.vmap(loss.family.family_derivatives, (0, None))(jnp.asarray(posterior.x), jnp.asarray(loss.basis))
        w2 = posterior.weights**2
        return np.einsum("n,ntp,np->t", w2, family.grad_T, family.grad_b)


def test_samples_agree_with_the_moments(random_method):
    """Mean within 5 standard errors (false alarm about 1e-6 a coordinate), covariance within 5 %."""
    posterior = random_method(2, 3).build_posterior(data(60, 2), beta=0.3)
    draws = posterior.sample((200_000,), seed=5)
    assert (np.abs(draws.mean(0) - posterior.mean) < 5 * posterior.std / np.sqrt(200_000)).all()
    np.testing.assert_allclose(np.cov(draws.T), posterior.covariance, atol=0.05 * posterior.covariance.max())
    assert posterior.contains(draws).mean() == pytest.approx(0.95, abs=0.005)
    truth = posterior.mean + 1
    assert nsm.metrics.mse(draws, truth) == pytest.approx(posterior.mse(truth), rel=0.02)


def test_log_density_is_normalised(random_method):
    posterior = random_method(1, 1).build_posterior(data(30, 1), beta=0.5)
    sd = posterior.std[0]
    grid = np.linspace(posterior.mean[0] - 10 * sd, posterior.mean[0] + 10 * sd, 20_001)
    assert np.trapezoid(np.exp(posterior.log_prob(grid[:, None])), grid) == pytest.approx(1, rel=1e-9)


def test_update_equals_building_from_all_data_with_the_same_weight(random_method):
    method = random_method(2, 3)
    x = data(50, 2)
    first = method.build_posterior(x[:30], beta=0.4)
    updated = first.update(x[30:40]).update(x[40:])
    together = first.update(x[30:])
    np.testing.assert_allclose(updated.mean, together.mean, rtol=1e-10)
    theta = np.random.default_rng(6).standard_normal((200, 3))
    assert unevenness(updated, updated.log_prob, theta) < 1e-6
    assert updated.n == 50
    assert len(updated.weights) == 50
    assert first.n == 30


def test_update_with_refit_equals_building_from_all_data(random_method):
    method = random_method(2, 3)
    x = data(50, 2)
    updated = method.build_posterior(x[:30], beta=0.4).update(x[30:], refit=True)
    together = method.build_posterior(x, beta=0.4)
    np.testing.assert_allclose(updated.mean, together.mean, rtol=1e-9)
    np.testing.assert_allclose(updated.covariance, together.covariance, rtol=1e-9)


def gaussian_kl(p, q):
    inverse = np.linalg.inv(q.covariance)
    shift = q.mean - p.mean
    return 0.5 * (
        np.trace(inverse @ p.covariance)
        - p.dim
        + shift @ inverse @ shift
        - np.linalg.slogdet(inverse @ p.covariance)[1]
    )


def test_influence_is_the_divergence_to_the_posterior_without_the_observation(random_method):
    method = random_method(2, 3)
    x = data(30, 2)
    posterior = method.build_posterior(x, beta=0.4)
    influence = posterior.influence()
    for i in (0, 1, 17, 29):
        kept = np.delete(x, i, axis=0)
        left = with_data(posterior, kept[:1]).update(kept[1:])
        assert influence[i] == pytest.approx(gaussian_kl(posterior, left), rel=1e-6, abs=1e-12)
    assert influence[:3].max() < 1e-2 * influence.max()


def with_data(posterior, x):
    """The posterior of other data, with the weight as it stands."""
    statistics = posterior.statistics
    statistics = statistics._replace(data=(x,), total=total_loss(statistics.loss, x))
    options = {"resolution": posterior.resolution}
    return ConjugatePosterior(posterior.provenance, posterior.prior, statistics, posterior.beta, **options)


@pytest.mark.parametrize(
    "weight", [nsm.weights.IMQ(zeta=2.0), nsm.weights.IMQ(zeta=1.0), nsm.weights.PlateauIMQ()], ids=repr
)
def test_one_observation_moved_away_is_harmless(trained_gnk, weight):
    x = nsm.tasks.get("gnk").observe(100, seed=1).x
    posteriors = {}
    for k in range(1, 13):
        moved = x.copy()
        moved[0] = 10.0**k
        posteriors[k] = trained_gnk.build_posterior(moved, beta=1.0, weight=weight)
        assert np.isfinite(posteriors[k].mean).all()
        assert np.isfinite(posteriors[k].covariance).all()
    assert gaussian_kl(posteriors[6], posteriors[12]) < 1e-4


@pytest.mark.parametrize("far", [1e20, 1e150, 1e300])
def test_absurd_observations_do_not_break_anything(trained_gnk, far):
    x = nsm.tasks.get("gnk").observe(100, seed=1).x
    x[:3] = [[far], [-far], [far]]
    posterior = trained_gnk.build_posterior(x, beta=1.0)
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.influence()).all()
    assert posterior.weights[:3].max() < 1e-6
    assert posterior.certificate.verdict in " ".join(posterior.summary().split())  # and no warning of an overflow


def test_padding_and_blocks_do_not_change_the_sums(trained_gnk):
    """Sizes around the powers of two and beyond one block: the sum of parts is the whole."""
    x = nsm.tasks.get("gnk").observe(70_000, seed=2).x
    whole = trained_gnk.build_posterior(x, beta=0.1)
    parts = with_data(whole, x[:1])
    for a, b in ((1, 129), (129, 2177), (2177, 70_000)):
        parts = parts.update(x[a:b])
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-9)
    np.testing.assert_allclose(parts.covariance, whole.covariance, rtol=1e-9)


def test_other_prior_weight_and_beta_need_no_training(trained_gnk):
    task = nsm.tasks.get("gnk")
    x = task.observe(100, seed=1).x
    tight = nsm.GaussianPrior(task.theta_true, 1e-6 * np.eye(4))
    posterior = trained_gnk.build_posterior(x, beta=0.1)
    np.testing.assert_allclose(posterior.with_prior(tight).mean, task.theta_true, atol=0.01)
    np.testing.assert_allclose(
        posterior.with_prior(tight).mean, trained_gnk.build_posterior(x, beta=0.1, prior=tight).mean
    )
    np.testing.assert_allclose(posterior.with_beta(1e-12).mean, task.prior.mean, atol=1e-6)


def test_summary_and_arviz(trained_gnk):
    observed = nsm.tasks.get("gnk").observe(100, seed=1)
    posterior = trained_gnk.build_posterior(observed.x)
    text = posterior.summary()
    assert "log k" in text
    low = posterior.weights < 0.1
    assert (low >= observed.is_outlier).all()
    assert f"{low.sum()} of 100 observations have a weight below 0.1" in text
    data = posterior.to_arviz(draws=50, chains=2)
    assert data.posterior["log B"].shape == (2, 50)
    assert data.observed_data["weight"].shape == (100,)


def test_a_network_whose_losses_overflow_says_so(random_method):
    family = random_method(1, 2, excess=None).family
    with jax.enable_x64(True):
        huge = dataclasses.replace(family, T=dataclasses.replace(family.T, V=1e160 * family.T.V))
    method = random_method(1, 2, excess=None).adopt(huge)
    with pytest.raises(nsm.errors.ConvergenceError, match="NaN or infinite: there is no posterior"):
        method.build_posterior(np.linspace(-1, 1, 20)[:, None], beta=0.1)


@pytest.mark.parametrize("error", [OverflowError("34"), np.linalg.LinAlgError("SVD did not converge")], ids=repr)
def test_a_bound_that_cannot_be_computed_certifies_nothing(error, random_method, monkeypatch):
    posterior = random_method(1, 2, excess=None).build_posterior(np.linspace(-1, 1, 20)[:, None], beta=0.1)

    def fail(posterior):
        raise error

    monkeypatch.setitem(CERTIFIERS, (ConjugatePosterior, FamilyLoss), fail)
    assert not posterior.certificate.robust
    assert "too large for a bound to be computed" in posterior.certificate.verdict
