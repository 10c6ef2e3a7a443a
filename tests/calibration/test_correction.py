"""Posteriors corrected for a surrogate's error, as held-out simulations near them tell it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes import serialisation
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import SurrogateTest
from nsmbayes.losses.corrected import CorrectedLoss, Correction, corrected, uncorrected
from nsmbayes.losses.held_out import HeldOut
from nsmbayes.surrogates import MixtureDensity, Standardiser
from nsmbayes.surrogates.mixture import GaussianMixture

PRIOR = nsm.GaussianPrior(mean=[0.0], covariance=[9.0])
TRUTH, N, WRONG = 1.0, 2000, 0.15  # seven posterior standard deviations


class Shifted(MixtureDensity):
    """x ~ N(theta + b, 1), of which the truth is b = 0."""

    b: float
    scale_x: Standardiser
    scale_theta: Standardiser

    def mixture(self, t):
        return GaussianMixture(jnp.zeros(1), (t + self.b)[None], jnp.ones((1, 1, 1)))


def built(kind, b, simulations=20_000, seed=0):
    """A method with that density, and simulations around the truth that it was not trained on."""
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        unit = Standardiser(jnp.zeros(1), jnp.ones(1), asinh=False)
        density = Shifted(b, unit, unit)
    method = kind(PRIOR).append_simulations(PRIOR.sample(200, seed=0), np.linspace(-90, 90, 200)[:, None])
    method.adopt(density)
    theta = TRUTH + 0.1 * rng.standard_normal((simulations, 1))
    method._hold(HeldOut(theta, theta + rng.standard_normal(theta.shape)))
    return method


@pytest.fixture(scope="module")
def x():
    return TRUTH + np.random.default_rng(1).standard_normal((N, 1))


@pytest.fixture(scope="module")
def posterior(x):
    return built(nsm.NSMBayesAmortised, WRONG).build_posterior(x, seed=0)


@pytest.mark.parametrize("kind", [nsm.NSMBayes, nsm.NSMBayesAmortised])
@pytest.mark.parametrize("far", [0, 200])
def test_a_wrong_surrogate_that_is_corrected_gives_the_posterior_of_the_right_one(kind, far, x):
    """With clean data, and with a tenth of them far away; by the noise of 20,000 simulations, 0.3 widths."""
    x = np.concatenate([np.full((far, 1), 40.0), x[far:]])
    right = built(kind, 0.0).build_posterior(x, beta=1.0, seed=0)
    wrong = built(kind, WRONG).build_posterior(x, beta=1.0, seed=0)
    alone = built(kind, WRONG)
    alone._hold(None)
    alone = alone.build_posterior(x, beta=1.0, seed=0)
    width = right.std[0]
    assert abs(alone.mean[0] - right.mean[0]) > 4 * width
    assert wrong.surrogate_check.corrected
    assert wrong.surrogate_check.seen > 16
    assert abs(wrong.mean[0] - right.mean[0]) < 1.2 * width
    assert wrong.std[0] == pytest.approx(width, rel=0.1)
    assert abs(built(kind, 0.0).build_posterior(x, beta=1.0, seed=0).mean[0] - right.mean[0]) < 1e-9


def test_a_right_surrogate_is_left_alone_but_for_noise(x):
    """Three sets of simulations: the correction is no larger than their noise, three standard deviations at most."""
    without = built(nsm.NSMBayes, 0.0)
    without._hold(None)
    without = without.build_posterior(x, beta=1.0, seed=0)
    for seed in range(3):
        found = built(nsm.NSMBayes, 0.0, seed=seed).build_posterior(x, beta=1.0, seed=0)
        moved = abs(found.mean[0] - without.mean[0]) / without.std[0]
        assert moved < 3 * np.sqrt(found.surrogate_check.noise) + 0.1
        assert found.surrogate_check.ratio == found.surrogate_check.noise


def test_the_learning_rate_is_lowered_for_what_is_left(posterior):
    check = posterior.surrogate_check
    assert check.corrected
    assert check.applied
    assert check.ratio == check.noise < 1 < check.seen
    wider = check.wider + posterior.suspects.wider - 1
    assert posterior.beta == pytest.approx(posterior.calibration.beta / wider)
    assert check.wider == 1 + check.ratio
    assert posterior.contains([TRUTH])
    assert "corrected by them for an error of" in " ".join(posterior.summary().split())
    assert posterior.warnings == ()


def test_what_follows_from_a_corrected_posterior_is_corrected(posterior, x, tmp_path):
    """Other learning rates and priors, more observations and fewer, sums without observations, and from disk."""
    method, check = built(nsm.NSMBayesAmortised, WRONG), posterior.surrogate_check
    near = pytest.approx(posterior.mean[0], abs=0.5 * posterior.std[0])
    others = [
        posterior.with_beta(2 * posterior.beta),
        posterior.with_prior(nsm.GaussianPrior([0.5], [4.0])),
        posterior.update(x[:200]),
        posterior.remove(np.arange(200)),
        method.posterior_from(posterior.statistics),
        method.posterior_from(nsm.load(posterior.statistics.save(tmp_path / "sums"))),
    ]
    assert [float(other.mean[0]) for other in others] == [near] * len(others)
    assert [other.surrogate_check.correction for other in others[:4]] == [check.correction] * 4
    np.testing.assert_allclose(others[2].target.loss.gradient, (N + 200) * np.array(check.correction.gradient))
    assert nsm.load(posterior.save(tmp_path / "posterior")).surrogate_check == check
    grid = np.linspace(-3, 3, 7)[:, None] * posterior.std + posterior.mean
    heights = posterior.log_prob(grid)
    assert heights.argmax() == 3
    kept = method.posterior_from(posterior.statistics).log_prob(grid)
    np.testing.assert_allclose(kept - kept[3], heights - heights[3], atol=1e-6)


def test_old_sums_are_those_of_a_posterior_without_correction(posterior):
    arrays = {name: each for name, each in posterior.statistics.arrays.items() if name != "correction"}
    header, arrays = serialisation.MIGRATIONS[7]({"format": 7, "statistics": "nsm-bayes-amortised"}, arrays)
    assert header["format"] == 8
    np.testing.assert_array_equal(arrays["correction"], np.zeros(3))


def test_bounds_and_influence_are_those_of_the_observations(posterior):
    """The linear term does not depend on them: it is no part of what one of them adds."""
    assert isinstance(posterior.target.loss, CorrectedLoss)
    assert posterior.certificate.theorem != "no theorem"
    assert any("also kept fixed" in note for note in posterior.certificate.notes)
    influence = posterior.leave_one_out()
    assert influence.kl.max() < 1
    assert "changes" in str(posterior.sensitivity())


def test_the_term_is_linear_near_bounded_far_and_no_observation_has_it(posterior):
    inner, theta, term = uncorrected(posterior.target.loss), jnp.array([0.7]), Correction((2.0,), (0.0,), 100.0)
    assert corrected(inner, None) is inner

    @double_precision
    def values():
        loss = corrected(inner, term)
        differences = [float(loss(t) - inner(t)) for t in (theta, theta + 1e3)]
        return differences, np.asarray(loss.each(theta) - inner.each(theta))

    (near, far), each = values()
    assert near == pytest.approx(-1.4, rel=1e-3)
    assert far == pytest.approx(-100.0)
    np.testing.assert_allclose(term.at(np.array([[0.7]])), -near)
    np.testing.assert_array_equal(each, 0.0)


def test_simulations_that_are_too_far_apart_warn_and_do_not_correct():
    """What is near must be near in widths of the posterior: elsewhere the error is another one."""
    rng, n = np.random.default_rng(0), 10_000
    theta = rng.standard_normal((20_000, 2))
    gradients = rng.standard_normal((20_000, 2)) + 0.03
    ask, facts = SurrogateTest(theta, gradients), (np.zeros(2), np.eye(2) / n, n, np.eye(2) / n)
    assert ask.correct(*facts) is None
    for scale in (10.0 ** np.arange(1, 6)).tolist():  # weights whose squares underflow, and that are zero
        assert ask.correct(np.zeros(2) + 0.01, np.eye(2) / n / scale, n, np.eye(2) / n / scale) is None
    assert ask.check(*facts).ratio > 3
    narrow = ask._replace(theta=theta / 50).correct(*facts)
    np.testing.assert_allclose(narrow.correction.gradient, 0.03, atol=0.03)
    assert narrow.ratio < 1 < narrow.seen
    moved_away = ask._replace(theta=theta / 50, gradients=gradients + 1)
    assert moved_away.correct(*facts) is None
    assert moved_away.check(*facts).ratio > 100


def test_observations_without_weight_are_not_corrected_for():
    """Where a tenth of the data are ignored, the error of the surrogate is that of the others."""
    rng = np.random.default_rng(0)
    theta, gradients = rng.standard_normal((5000, 1)), rng.standard_normal((5000, 1)) + 1.0
    checks = [
        SurrogateTest(theta, gradients, np.full(5000, trust)).correct(np.zeros(1), np.eye(1), 100, np.eye(1) / 100)
        for trust in (1.0, 1 / 0.9, 0.5)
    ]
    ratios = np.array([check.correction.gradient[0] for check in checks]) / checks[0].correction.gradient[0]
    np.testing.assert_allclose(ratios, [1.0, 0.9, 1.0], atol=1e-3)
