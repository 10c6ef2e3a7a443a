"""Posteriors of very many observations, from a weighted subset, against those of the loss of all."""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import nsmbayes as nsm
from nsmbayes.calibration import CompressedProblem, PathCalibration, SampledProblem
from nsmbayes.posteriors.influence import influence_by_reweighting
from nsmbayes.robustness import pif_delta, pif_kl
from nsmbayes.samplers import MANY, compress, each_loss
from nsmbayes.surrogates import Density, Frame
from nsmbayes.surrogates.mixture import GaussianMixture

pytestmark = pytest.mark.usefixtures("optimised")

PRIOR = nsm.GaussianPrior(np.zeros(3), 4 * np.eye(3))
N = 2200


class Scaled(Density):
    """x ~ N((theta_1, theta_2), exp(theta_3)^2 I)."""

    smoothable: ClassVar[bool] = True
    unit: Array

    def mixture(self, theta):
        return GaussianMixture(jnp.zeros(1), theta[None, :2], jnp.exp(2 * theta[2]) * jnp.eye(2)[None])

    def network_log_prob(self, t, z):
        return self.mixture(t).smooth(0.0).log_prob(z[None])[0]

    def log_prob(self, theta, x):
        return self.network_log_prob(theta, x)

    def derivatives(self, theta, x, basis):
        found = self.derivatives_at(theta, Frame(x, basis), 0.0)(jnp.zeros_like(x)[None])
        return jax.tree.map(lambda a: a[0], found)

    def derivatives_at(self, theta, frame, h):
        return self.mixture(theta).pull_back(frame.offset, frame.basis).smooth(h).derivatives


def observed(n, seed=0):
    x = np.array([1.0, -0.5]) + 1.5 * np.random.default_rng(seed).standard_normal((n, 2))
    x[: n // 20] += 25
    return x


@functools.cache
def method():
    made = nsm.NSMBayes(PRIOR, noise_levels=(0.3, 1.0), draws=250)
    made.append_simulations(PRIOR.sample(200, seed=0), 40 * np.random.default_rng(0).standard_normal((200, 2)))
    with jax.enable_x64(True):
        return made.adopt(Scaled(jnp.ones(1)))


@functools.cache
def compressed():
    return method().build_posterior(observed(N))


@functools.cache
def full():
    """The same posterior from the loss of all observations at once, and the problem behind it."""
    own = method()
    problem = SampledProblem(own.support, own.setting(observed(N)).loss(observed(N)), N, own.sampler)
    return problem, problem.draw(compressed().beta, 1)


def test_nothing_is_compressed_below_the_limit():
    assert N > MANY
    few = method().build_posterior(observed(60), beta=1.0)
    assert few.compression is None
    assert "weighted observations" not in few.summary()


@pytest.mark.slow
def test_moments_are_those_of_the_full_loss():
    """With 700 effective draws each means differ by noise of 0.053 sd, sds by 3.8 %; both are given 4 of these."""
    posterior, draws = compressed(), full()[1].draws.flat
    assert posterior.compression.observations < N / 4
    assert posterior.compression.error < 0.1
    assert (np.abs(posterior.mean - draws.mean(axis=0)) < 0.22 * draws.std(axis=0)).all()
    np.testing.assert_allclose(posterior.std, draws.std(axis=0), rtol=0.15)


def test_the_error_that_is_reported_is_that_of_the_loss():
    """The subset's loss against one with other nodes for the noise: off by the error and the noise's, no more."""
    posterior, (_, (target, _)) = compressed(), full()
    theta = posterior.thinned(40)
    losses = [each_loss(one, theta).sum(axis=1) for one in (posterior.target, target)]
    assert np.std(losses[0] - losses[1]) < 0.1 + 2 * posterior.noise_error()
    unweighted = posterior.target._replace(loss=posterior.compression.full.block(0))
    plain = N / posterior.compression.observations * each_loss(unweighted, theta).sum(axis=1)
    assert np.std(plain - losses[1]) > 5 * np.std(losses[0] - losses[1])


def test_summary_and_weights_concern_all_observations(tmp_path):
    posterior = compressed()
    assert f"that of all {N:,} by" in posterior.summary()
    assert posterior.weights.shape == (N,)
    assert set(np.flatnonzero(posterior.weights < 0.1)) == set(range(N // 20))
    assert {outlier.row for outlier in posterior.outliers(5)} <= set(range(N // 20))
    assert posterior.certificate.checks["A1"].holds
    posterior.save(tmp_path / "posterior")
    assert f"that of all {N:,} by" in nsm.load(tmp_path / "posterior").summary()


def test_influence_is_that_of_each_observation_on_the_full_loss():
    posterior, (_, (target, _)) = compressed(), full()
    theta, found = posterior.thinned(), posterior.leave_one_out()
    expected = influence_by_reweighting(posterior.beta * each_loss(target, theta))
    assert found.kl.shape == (N,)
    assert found.reliable.all()
    # nodes for the noise differ from observation to observation, so that only the many agree
    assert np.corrcoef(found.kl, expected.kl)[0, 1] > 0.9
    assert np.mean(found.kl) == pytest.approx(np.mean(expected.kl), rel=0.1)
    some = posterior.outliers(3)
    np.testing.assert_allclose([one.influence for one in some], found.kl[[one.row for one in some]], rtol=1e-6)
    at = np.asarray(posterior.losses(posterior.mean))
    position = posterior.mean[None]
    np.testing.assert_allclose(posterior.row_losses(position, np.arange(N))[0], at, rtol=1e-9)
    assert pif_kl(posterior, posterior.x[:1], replace=0).kl[0] < 1e-2
    assert np.isfinite(pif_delta(posterior, posterior.x[:2], draws=20).relative).all()


def test_resampled_losses_vary_as_those_of_all_observations():
    """Variances over 400 resamples of loss differences between draws: subset and resampling leave them 8 % noise."""
    posterior, (problem, (target, _)) = compressed(), full()
    core = CompressedProblem(posterior.target.prior, posterior.compression, method().sampler)
    theta = posterior.thinned(20)
    spreads = []
    for one, at in ((core, posterior.target), (problem, target)):
        losses = one.total_losses(at, theta, one.resample_counts(400, np.random.default_rng(0)))
        changes = losses.resampled - losses.resampled.mean(axis=1, keepdims=True)
        expected = losses.full - losses.full.mean()
        spreads.append(changes.std(axis=0))
        assert (np.abs(changes.mean(axis=0) - expected) < 5 * spreads[-1] / np.sqrt(400)).all()
    assert np.exp(np.log(spreads[0] / spreads[1]).mean()) == pytest.approx(1, abs=0.2)


def test_coverage_is_that_of_resamples_of_all_observations():
    """Of 200 resamples each: where 0.8 and more are covered, fractions differ by noise of 0.04, and are given 0.16."""
    calibration = PathCalibration(largest=4.0, particles=200)
    core = CompressedProblem(compressed().target.prior, compressed().compression, method().sampler)
    found, expected = (calibration.calibrate(problem, seed=0) for problem in (core, full()[0]))
    np.testing.assert_array_equal(found.betas, expected.betas)
    judged = expected.coverages >= 0.8
    assert np.nanmin(expected.coverages) < 0.8
    assert judged.sum() > 3
    assert np.nanmax(np.abs(found.coverages - expected.coverages)[judged]) < 0.16


def test_the_subset_is_the_same_for_the_same_seed():
    posterior, own = compressed(), method()
    again = compress(own.support, posterior.setting, observed(N), beta=1.0, seed=0)
    np.testing.assert_array_equal(again.order, posterior.compression.order)
    np.testing.assert_array_equal(again.weights, posterior.compression.weights)
