"""Which parameters make a simulator fail, and posteriors corrected for it, beside exact answers."""

import pickle

import numpy as np
import pytest
from scipy.special import expit
from support.builders import conjugate

import nsmbayes as nsm
from nsmbayes.errors import ConvergenceError
from nsmbayes.posteriors import Provenance, StoredPosterior
from nsmbayes.robustness import certify

PRIOR = nsm.GaussianPrior(mean=[0.0], covariance=[1.0])


def leaky(rng, theta):
    """Fails for large theta more often than for small ones: P(valid | theta) = 1 / (1 + exp(2 theta - 1))."""
    if rng.uniform() > expit(1 - 2 * theta[0]):
        raise RuntimeError("it did not converge")
    return theta + rng.standard_normal(1)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    out = tmp_path_factory.mktemp("campaigns") / "leaky.zarr"
    return nsm.simulate(leaky, PRIOR, 20_000, out=out, max_failures=1.0, progress=False)


@pytest.fixture(scope="module")
def validity(campaign):
    return nsm.diagnostics.validity(campaign, seed=0)


def exact(x):
    """What all valid simulations say: the posterior without the factor, by its draws."""
    precision = 1 + len(x)
    draws = x.sum() / precision + np.random.default_rng(0).standard_normal((4, 5000, 1)) / np.sqrt(precision)
    return StoredPosterior(
        Provenance("nle", "NLE", ("theta",), certify, dropped=0.4), draws, x, prior=PRIOR,
        moments=(draws.mean(axis=(0, 1)), np.atleast_2d(draws.var())), gaussian=False, weights=np.ones(len(x)),
        location_scatter=None, influence=None, factor=None, beta=1.0, result=None, calibration=None,
        warnings=("one of before",), surrogate_check=None,
    )  # fmt: skip


def test_the_classifier_finds_the_probability(validity, campaign):
    theta = np.linspace(-2, 2, 41)
    np.testing.assert_allclose(np.exp(validity.log_prob(theta[:, None])), expit(1 - 2 * theta), atol=0.04)
    failed = len(campaign.failures().rows)
    assert validity.rate == 1 - failed / 20_000
    assert f"{validity.rate:.2%} of the rows are valid" in validity.describe()
    assert validity.gain > 0.1


def test_a_corrected_posterior_is_the_exact_one(validity):
    x = np.array([[0.3], [0.9], [1.4], [0.2]])
    grid = np.linspace(-4, 4, 4001)
    log_density = -0.5 * grid**2 - 0.5 * ((x - grid) ** 2).sum(axis=0) + 4 * np.log(expit(1 - 2 * grid))
    density = np.exp(log_density - log_density.max())
    mean = (density * grid).sum() / density.sum()
    sd = np.sqrt((density * (grid - mean) ** 2).sum() / density.sum())
    before = exact(x)
    corrected = validity.correct(before, seed=0)
    assert before.mean[0] > mean + 0.7 * sd  # it matters
    np.testing.assert_allclose(corrected.mean, mean, atol=0.05)
    np.testing.assert_allclose(corrected.std, sd, rtol=0.05)
    np.testing.assert_allclose(corrected.sample((10_000,), seed=1).mean(), mean, atol=0.05)


def test_what_was_corrected_says_so(validity):
    posterior = conjugate(1, prior=nsm.GaussianPrior(np.zeros(2), np.eye(2)))
    twice = nsm.diagnostics.Validity(None, np.zeros(2), np.ones(2), 0.9, 0.0)
    corrected = twice.correct(posterior)
    np.testing.assert_allclose(corrected.mean, posterior.mean, atol=0.05 * posterior.std.max())
    assert corrected.warnings[0].startswith("Corrected for simulations that failed (10.00%)")
    assert not corrected.certificate.robust
    assert "corrected for simulations that failed" in corrected.certificate.verdict
    assert pickle.loads(pickle.dumps(corrected)).warnings == corrected.warnings
    assert exact(np.ones((3, 1))).warnings == validity.correct(exact(np.ones((3, 1)))).warnings[1:]


def test_a_correction_that_no_weights_can_bridge_is_refused(validity):
    with pytest.raises(ConvergenceError, match="too strong for draws of the posterior to be reweighted"):
        validity.correct(exact(np.full((200, 1), 2.0)))


def test_failures_that_theta_does_not_tell_need_no_correction(tmp_path):
    def moody(rng, theta):
        return theta + rng.standard_normal(1) if rng.uniform() < 0.8 else [np.nan]

    made = nsm.simulate(moody, PRIOR, 2000, out=tmp_path / "moody.zarr", max_failures=1.0, progress=False)
    found = nsm.diagnostics.validity(made.path)
    assert found.network is None
    assert "nothing has to be corrected" in found.describe()
    np.testing.assert_allclose(found.log_prob([[3.0]]), np.log(found.rate))
