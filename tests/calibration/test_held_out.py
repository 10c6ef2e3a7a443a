"""The check of a surrogate by simulations that it was not trained on, and more simulations where it says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import SurrogateCheck, SurrogateTest
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.held_out import HeldOut, density_gradients, family_gradients, frames_at
from nsmbayes.losses.statistics import total_loss
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights import IMQ, Weighting

PRIOR = nsm.GaussianPrior(mean=[0.0, 0.0], covariance=[4.0, 0.25])
LEVELS = (0.2, 0.8, 3.2)
SETTINGS = nsm.TrainingSettings(max_epochs=15, learning_rate=3e-3, batch_size=128, schedule="cosine")


def simulate(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
    """A normal law of unknown mean and log standard deviation."""
    return (theta[:, 0] + np.exp(theta[:, 1]) * rng.standard_normal(len(theta)))[:, None]


@pytest.fixture(scope="module")
def method() -> nsm.NSMBayes:
    theta = PRIOR.sample((4000,), seed=0)
    trained = nsm.NSMBayes(PRIOR, surrogate=nsm.MDN(components=2, hidden=(32, 32)))
    x = simulate(np.random.default_rng(1), theta)
    return trained.append_simulations(theta, x).train(seed=0, settings=SETTINGS, progress=False)


def test_a_gradient_is_that_of_the_loss_of_one_observation(method):
    """By finite differences of the loss that posteriors have, in the same coordinates."""
    theta, x = PRIOR.sample((3,), seed=5), np.array([[0.4], [-1.0], [2.5]])
    weight = IMQ(zeta=2.0)  # smooth, so that two rules for the noise agree
    found = density_gradients(method.density, weight, LEVELS, HeldOut(theta, x), nodes=101)
    location, scatter = frames_at(method.density, theta, np.random.default_rng([0, 3]))
    for i in range(3):
        centre = LocationScatter.from_scatter(location[i], scatter[i], "mcd")
        setting = NSMSetting.of(method.density, Weighting(weight, centre), LEVELS, whiten=True)
        loss = setting.loss(x[i : i + 1])
        gradient = double_precision(lambda t, loss=loss: np.asarray(jax.grad(loss)(jnp.asarray(t))))(theta[i])
        np.testing.assert_allclose(found[i], gradient, rtol=0.02, atol=0.02 * np.abs(gradient).max())


def test_the_gradient_of_a_family_is_that_of_its_quadratic(method):
    theta = PRIOR.sample((2000,), seed=0)
    conj = nsm.NSMBayesConj(PRIOR, hidden=8, noise_levels=LEVELS).append_simulations(
        theta, simulate(np.random.default_rng(1), theta)
    )
    conj.train(seed=0, settings=nsm.TrainingSettings(max_epochs=2), progress=False)
    theta, x = PRIOR.sample((6,), seed=5), np.linspace(-2, 3, 6)[:, None]
    weight = IMQ(zeta=2.0)
    found = family_gradients(conj.family, method.density, weight, LEVELS, HeldOut(theta, x), nodes=101)
    location, scatter = frames_at(method.density, theta, np.random.default_rng([0, 6]))
    recipe, want = conj._recipe(weight), []
    for i in range(6):
        loss = recipe.around(LocationScatter.from_scatter(location[i], scatter[i], "mcd"))
        A, B, _ = total_loss(loss, x[i : i + 1])
        want.append(2 * (A @ theta[i] + B))
    np.testing.assert_allclose(found, want, atol=0.02 * np.abs(want).max())


def _test(bias: float, m: int = 20_000, seed: int = 0) -> SurrogateTest:
    rng = np.random.default_rng(seed)
    return SurrogateTest(rng.standard_normal((m, 2)), rng.standard_normal((m, 2)) + np.array([bias, 0.0]))


def test_the_ratio_is_the_squared_shift_in_posterior_variances():
    """With curvature 1 an error b of the gradient moves the mean of n observations by b: n b^2 / 2 per parameter."""
    n, bias = 10_000, 0.1
    check = _test(bias).check(np.zeros(2), np.eye(2) / n, n, np.eye(2) / n)
    assert check.seen == pytest.approx(n * bias**2 / 2, rel=0.3)
    assert check.noise == pytest.approx(n / check.near, rel=0.1)
    assert check.ratio == pytest.approx(check.seen)  # for two parameters what is subtracted is added again
    assert check.worth == pytest.approx(n / check.ratio)
    assert check.notable


def test_a_surrogate_without_error_is_told_from_one_with_it():
    """Without error `seen` exceeds four times the noise with probability exp(-4) = 1.8 %: at most 4 of 50, or 1 %."""
    n = 1000
    alarms = [
        (found := _test(0.0, 2000, seed).check(np.zeros(2), np.eye(2) / n, n, np.eye(2) / n)).seen > 4 * found.noise
        for seed in range(50)
    ]
    assert sum(alarms) <= 4
    planted = _test(0.3, 2000).check(np.zeros(2), np.eye(2) / n, n, np.eye(2) / n)
    assert planted.seen > 4 * planted.noise


def test_a_posterior_allows_for_it_and_a_given_beta_does_not(method, tmp_path):
    x = simulate(np.random.default_rng(3), np.tile([1.0, 0.0], (300, 1)))
    posterior = method.build_posterior(x, seed=0)
    check = posterior.surrogate_check
    assert check.applied
    wider = check.wider + posterior.suspects.wider - 1
    assert posterior.beta == pytest.approx(posterior.calibration.beta / wider)
    assert check.wider > 1 + check.ratio
    assert "held-out simulations" in posterior.summary()
    given = method.build_posterior(x, beta=0.5, seed=0)
    assert given.beta == 0.5
    assert not given.surrogate_check.applied
    loaded = nsm.load(method.save(tmp_path / "model"))
    assert loaded.build_posterior(x, seed=0).beta == pytest.approx(posterior.beta, rel=1e-6)
    assert nsm.load(posterior.save(tmp_path / "posterior")).surrogate_check == check


def test_a_density_from_elsewhere_is_called_unchecked(method):
    theta = PRIOR.sample((500,), seed=0)
    other = nsm.NSMBayes(PRIOR).append_simulations(theta, simulate(np.random.default_rng(1), theta))
    x = simulate(np.random.default_rng(3), np.tile([1.0, 0.0], (60, 1)))
    posterior = other.adopt(method.density).build_posterior(x, seed=0)
    assert posterior.surrogate_check is None
    assert "Surrogate unchecked" in " ".join(posterior.summary().split())


def test_damaged_numbers_of_a_check_are_refused():
    check = SurrogateCheck(0.5, 0.4, 0.3, 100.0, 50, True)
    assert SurrogateCheck.from_numbers(check.as_numbers()) == check
    for numbers in (np.ones(3), -np.ones(6)):
        with pytest.raises(nsm.InputError, match="damaged"):
            SurrogateCheck.from_numbers(numbers)


@pytest.mark.filterwarnings("ignore:.* lie outside the range of the simulations")
def test_refine_simulates_near_the_posterior_whatever_outliers_say(method, tmp_path):
    """The new parameters lie around the posterior, the network knows them, and the check has more to go by."""
    x = simulate(np.random.default_rng(3), np.tile([1.0, 0.0], (400, 1)))
    x[:40] = 60.0
    refined = nsm.NSMBayes(PRIOR, surrogate=method.surrogate).adopt(method)
    refined._simulations = list(method._simulations)
    before = refined.build_posterior(x, seed=0)
    calls = []

    def simulator(rng, theta):
        calls.append(theta)
        return simulate(rng, theta[None])[0]

    keep = tmp_path / "kept"
    refined.refine(x, simulator, simulations=600, rounds=2, seed=0, keep=keep, settings=SETTINGS, progress=False)
    assert len(calls) >= 600
    assert sum(len(np.load(file)) for file in keep.iterdir()) == 600
    assert np.abs(np.median(calls, axis=0) - [1.0, 0.0]).max() < 0.2
    assert refined.simulations_used == 4600
    after = refined.build_posterior(x, seed=0)
    assert after.surrogate_check.near > before.surrogate_check.near
    assert after.contains([1.0, 0.0])


def test_refine_refuses_what_it_cannot_do(method):
    x = np.zeros((5, 1))
    with pytest.raises(nsm.InputError, match="NSMBayes"):
        nsm.NSMBayesConj(PRIOR).refine(x, None)
    with pytest.raises(nsm.InputError, match="`simulations`"):
        method.refine(x, nsm.tasks.get("gnk"), simulations=3)
    with pytest.raises(nsm.InputError, match="`simulator`"):
        method.refine(x, 7)

    def broken(rng, theta):
        raise ValueError("no")

    data = simulate(np.random.default_rng(3), np.tile([1.0, 0.0], (60, 1)))
    known = len(method._simulations)
    with pytest.raises(nsm.SimulationError, match="no"):
        method.refine(data, broken, simulations=100, progress=False)
    assert len(method._simulations) == known
