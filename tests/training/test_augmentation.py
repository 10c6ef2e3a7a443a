"""NSM-Bayes with a flow that is trained with noise, on a problem whose every answer is known.

x given theta is N(theta a, S) in the plane: with noise it is Gaussian again, and so is the posterior.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.stats import beta

import nsmbayes as nsm
from nsmbayes.surrogates import Density, Frame, MaskedAutoregressiveFlow, NoisyFlow, Scalers, Standardiser
from nsmbayes.surrogates.base import Derivatives
from nsmbayes.surrogates.mixture import GaussianMixture
from nsmbayes.training.augmentation import correlated_noise

pytestmark = pytest.mark.filterwarnings("ignore:.* lie outside the range of the simulations")

PRIOR = nsm.GaussianPrior([0.0], [1.0])
SLOPE, MIX = np.array([1.0, 0.5]), np.array([[1.0, 0.0], [0.6, 0.5]])
S = MIX @ MIX.T
LEVELS = (0.2, 0.4, 0.8, 1.6, 3.2)
FLOW, PLAIN = nsm.MAF(hidden=16, base_hidden=(16,)), nsm.MAF(hidden=16)
OPTIONS = {"surrogate": FLOW, "chains": 2, "draws": 200, "parameter_names": ("theta",)}
SETTINGS = nsm.TrainingSettings(
    learning_rate=1e-2, weight_decay=0.0, batch_size=100, max_epochs=15, patience=15, schedule="cosine"
)


def simulations(theta, seed):
    return theta, theta * SLOPE + np.random.default_rng(seed).standard_normal((len(theta), 2)) @ MIX.T


@pytest.fixture(scope="module")
def trained():
    method = nsm.NSMBayes(PRIOR, noise_levels=LEVELS, calibration=None, **OPTIONS)
    method.append_simulations(*simulations(PRIOR.sample((6000,), seed=0), 1))
    return method.train(0, settings=SETTINGS, progress=False)


def score_error(flow, h, *, told=None):
    """The root mean square error of the score of noisy data, in units of its own size."""
    theta, L = np.array([0.7]), np.linalg.cholesky(S)
    y = np.sqrt(1 + h**2) * np.random.default_rng(2).standard_normal((2000, 2))
    exact = -y / (1 + h**2)  # in a frame with the covariance S around the mean
    with jax.enable_x64(True):
        frame = Frame(jnp.asarray(theta * SLOPE), jnp.asarray(L))
        score = _score(flow, jnp.asarray(theta), frame, jnp.asarray(h if told is None else told), jnp.asarray(y))
        return np.sqrt(((np.asarray(score) - exact) ** 2).mean() / (exact**2).mean())


@eqx.filter_jit
def _score(flow, theta, frame, h, y):
    return flow.derivatives_at(theta, frame, h)(y).score


@pytest.mark.parametrize("h", [0.0, 0.2, 0.8, 3.2])
def test_the_score_of_noisy_data_is_learned(trained, h):
    """Within 12 %, also between the levels; untrained, or told another noise, it is several times as far away."""
    assert score_error(trained.density, h) < 0.12
    rng = np.random.default_rng(0)
    untrained = jax.tree.map(
        lambda a: jnp.asarray(0.1 * rng.standard_normal(a.shape)) if eqx.is_inexact_array(a) else a,
        trained.density,
        is_leaf=lambda node: isinstance(node, Standardiser),
    )
    assert score_error(untrained, h) > 0.3
    assert score_error(trained.density, h, told=2 * h if h > 0.5 else 0.9) > 0.3


def observed(n=40):
    return simulations(np.full((n, 1), 0.8), 5)[1]


def exact_posterior(x):
    information = SLOPE @ np.linalg.inv(S)
    precision = 1 + len(x) * information @ SLOPE
    return information @ x.sum(axis=0) / precision, 1 / np.sqrt(precision)


class Exact(Density):
    """The density itself, which the flow is to learn."""

    smoothable: ClassVar[bool] = True
    S: Array

    def _mixture(self, theta):
        return GaussianMixture(jnp.zeros(1), (theta[0] * SLOPE)[None], self.S[None])

    def network_log_prob(self, t, z):
        return self._mixture(t).smooth(0.0).log_prob(z[None])[0]

    def log_prob(self, theta, x):
        return self.network_log_prob(theta, x)

    def derivatives(self, theta, x, basis):
        score, laplacian = self.derivatives_at(theta, Frame(x, basis), 0.0)(jnp.zeros((1, 2)))
        return Derivatives(score[0], laplacian[0])

    def derivatives_at(self, theta, frame, h):
        return self._mixture(theta).pull_back(frame.offset, frame.basis).smooth(h).derivatives


@pytest.mark.slow
def test_the_posterior_is_that_of_the_density_itself_and_outliers_do_not_move_it(trained):
    """The same loss with the exact density, which is not the exact posterior: a weight discounts information."""
    x = observed()
    mean, sd = exact_posterior(x)
    exact = nsm.NSMBayes(PRIOR, noise_levels=LEVELS, calibration=None, chains=2, draws=200)
    exact.append_simulations(*simulations(PRIOR.sample((300,), seed=0), 1)).adopt(Exact(jnp.asarray(S)))
    means = []
    for far in (None, 40.0, 4e6):
        given = x if far is None else np.vstack([x[4:], np.full((4, 2), far) * [1, -1]])
        posterior, best = (method.build_posterior(given, seed=0) for method in (trained, exact))
        assert posterior.converged
        print(far, (posterior.mean[0] - best.mean[0]) / sd, posterior.std[0] / best.std[0], (best.mean[0] - mean) / sd)
        assert abs(posterior.mean[0] - best.mean[0]) < 0.5 * sd
        assert 0.8 < posterior.std[0] / best.std[0] < 1.25
        means.append(posterior.mean[0])
        if far is not None:
            assert posterior.weights[-4:].max() < 0.05
            assert abs(exact_posterior(given)[0] - mean) > 3 * sd  # Bayes' rule with the right model is misled
    assert abs(means[1] - means[2]) < 0.3 * sd


def test_nle_can_share_the_flow_without_noise(trained):
    mean, sd = exact_posterior(observed())
    posterior = nsm.NLE(PRIOR, **OPTIONS).adopt(trained).build_posterior(observed(), seed=0)
    assert abs(posterior.mean[0] - mean) < 0.5 * sd
    assert 0.8 < posterior.std[0] / sd < 1.25


def test_a_saved_flow_knows_the_same(trained, tmp_path):
    trained.save(tmp_path / "model")
    again = nsm.load(tmp_path / "model")
    assert type(again.density) is NoisyFlow
    assert again.density.levels == (0.2, 3.2)
    assert eqx.tree_equal(*(eqx.filter(method.density, eqx.is_array) for method in (trained, again)))
    with pytest.raises(nsm.InputError, match="adopted from elsewhere"):
        nsm.NLE(PRIOR, surrogate=PLAIN).adopt(trained).save(tmp_path / "other")


def test_adopt_asks_for_a_flow_that_knows_the_levels(trained):
    plain = nsm.NLE(PRIOR, **OPTIONS).append_simulations(*simulations(PRIOR.sample((300,), seed=0), 1))
    plain.adopt(PLAIN.build(jax.random.key(0), Scalers.blank(2, PRIOR.dim)))
    for levels, other, message in [
        (LEVELS, plain, "cannot be smoothed.*surrogate='maf'"),
        ((0.1, 0.8), trained, "from 0.1 to 0.8, but the flow was trained with noise from 0.2 to 3.2"),
        ((0.4, 6.4), trained, "from 0.4 to 6.4"),
    ]:
        method = nsm.NSMBayes(PRIOR, noise_levels=levels, **OPTIONS)
        with pytest.raises(nsm.InputError, match=message):
            method.adopt(other)
        with pytest.raises(nsm.NotTrainedError):
            _ = method.density
    for levels, other in [((0.0,), plain), ((0.0,), trained), ((0.4, 1.6), trained)]:
        assert nsm.NSMBayes(PRIOR, noise_levels=levels, **OPTIONS).adopt(other).density is other.density


def test_options_of_the_other_kind_of_flow_are_refused():
    given = simulations(PRIOR.sample((300,), seed=0), 1)
    for method, option in [
        (nsm.NSMBayes(PRIOR, surrogate=nsm.MAF(squash=False)), "squash"),
        (nsm.NSMBayes(PRIOR, surrogate=nsm.MAF(activation="silu")), "activation"),
        (nsm.NSMBayes(PRIOR, surrogate=nsm.MAF(base_floor=0.1), noise_levels=(0,)), "base_floor"),
        (nsm.NLE(PRIOR, surrogate=nsm.MAF(base_hidden=(8,))), "base_hidden"),
    ]:
        with pytest.raises(nsm.InputError, match=f"`{option}` must be left out"):
            method.append_simulations(*given).train(progress=False)


def test_one_dimension_is_refused():
    theta = PRIOR.sample((300,), seed=0)
    method = nsm.NSMBayes(PRIOR, noise_levels=LEVELS, **OPTIONS).append_simulations(theta, theta)
    with pytest.raises(nsm.InputError, match=r"conditional Gaussian.*surrogate='mdn'"):
        method.train(0, progress=False)


def test_the_single_level_starts_from_the_same_flow_and_sees_the_same_simulations_as_nle():
    """One epoch on the same simulations: the same networks to the bit."""
    brief = nsm.TrainingSettings(max_epochs=1)
    given = simulations(PRIOR.sample((300,), seed=0), 1)
    nle, single = (
        method.append_simulations(*given).train(0, settings=brief, progress=False)
        for method in (nsm.NLE(PRIOR, surrogate=PLAIN), nsm.NSMBayes(PRIOR, noise_levels=(0.0,), surrogate=PLAIN))
    )
    assert type(single.density) is MaskedAutoregressiveFlow
    assert eqx.tree_equal(*(eqx.filter(method.density, eqx.is_array) for method in (nle, single)))


def test_noise_in_training_is_what_it_says():
    """At 0: noise has the covariance that is given beside it, an eighth has none, and a correlation has the marginal
    distribution of uniform correlation matrices. All within 5 standard errors: a false alarm rate below 1e-5."""
    m, d = 20_000, 3
    seen = np.asarray(jax.jit(correlated_noise(0.1, 6.4))(jax.random.key(0), jnp.zeros((m, d))), float)
    noise, C = seen[:, :d], seen[:, d:].reshape(m, d, d)
    none = ~C.any(axis=(1, 2))
    assert abs(none.mean() - 1 / 8) < 5 * np.sqrt(7 / 64 / m)
    assert not noise[none].any()
    e = np.linalg.solve(C[~none], noise[~none][..., None])[..., 0]
    assert np.abs(e.T @ e / len(e) - np.eye(d)).max() < 5 * np.sqrt(2 / len(e))
    sizes = np.linalg.norm(C[~none], axis=2)
    assert 0.03 * 0.1 * 0.999 < sizes.min() < 0.004
    assert 5.0 < sizes.max() < 6.4 * 1.001
    correlations = C[~none, 1, 0] / sizes[:, 1]
    for p in (0.1, 0.5, 0.9):
        below = (correlations < 2 * beta.ppf(p, d / 2, d / 2) - 1).mean()
        assert abs(below - p) < 5 * np.sqrt(p * (1 - p) / len(e))
