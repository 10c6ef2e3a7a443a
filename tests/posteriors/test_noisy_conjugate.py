"""The conjugate posterior over noise levels, against the definition of its loss and against itself in parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import roots_hermitenorm
from support.reference import noisy_log_q

import nsmbayes as nsm
from nsmbayes.calibration import ClosedFormProblem
from nsmbayes.calibration.closed_form import coverage_curve
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import diagonalise, direction_rates, gaussian_posterior
from nsmbayes.losses.statistics import each_loss, total_loss
from nsmbayes.posteriors import ConjugatePosterior

LEVELS = (0.4, 0.8, 1.6)
WEIGHT = nsm.weights.IMQ(zeta=2.0)


def data(n, d_x, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d_x)) @ rng.standard_normal((d_x, d_x)) + 1
    x[: n // 10] -= 50
    return x


def brute_force_loss(posterior, theta, *, bug=None):
    """n L(theta) from its definition: derivatives by autodiff, the expectation over noise by 40 nodes per column."""
    location, scatter = map(jnp.asarray, posterior.location_scatter)
    family, scale = posterior.statistics.recipe.family, jnp.sqrt(jnp.diag(scatter))
    nodes, node_weights = roots_hermitenorm(40)
    d = len(location)
    e = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), -1).reshape(-1, d)
    p = np.prod(np.meshgrid(*[node_weights / node_weights.sum()] * d, indexing="ij"), axis=0).ravel()

    def at_level(h, coefficient):
        noise = h * scale / family.scale_x.scale
        inverse = jnp.linalg.inv(scatter + (0.0 if bug == "scatter without noise" else h**2) * jnp.diag(scale**2))

        def w2(x):
            return WEIGHT.squared(jnp.sqrt((x - location) @ inverse @ (x - location)))[0]

        def score(y, t):
            return jax.grad(lambda y: noisy_log_q(family, t, location + scale * y, noise))(y)

        def one(t, y):
            flow = jax.jacfwd(lambda y: w2(location + scale * y) * score(y, t))(y)
            s = score(y, t)
            return w2(location + scale * y) * (s @ s) + 2 * jnp.trace(flow)

        y = ((posterior.x - location) / scale)[:, None] + (0.0 if bug == "no noise on the data" else h) * e
        each = jax.vmap(jax.vmap(jax.vmap(one, (None, 0)), (None, 0)), (0, None))(jnp.asarray(theta), y)
        return coefficient * jnp.einsum("tnk,k->t", each, p)

    h = np.asarray(LEVELS)
    powers = h ** (1 if bug == "h instead of its square" else 2) * np.gradient(np.log(h))
    with jax.enable_x64(True):
        return np.asarray(sum(jax.jit(lambda h=h, c=c: at_level(h, c))() for h, c in zip(h, powers, strict=True)))


def distance(posterior, theta, **options):
    """The largest difference of the two losses, in units of the range of the brute-force one."""
    expected = brute_force_loss(posterior, theta, **options)
    return np.abs(posterior.n * posterior.loss(theta) - expected).max() / np.ptp(expected)


@pytest.fixture
def line(random_method):
    return random_method(1, 3, noise_levels=LEVELS, weight=WEIGHT).build_posterior(data(20, 1), beta=0.7)


THETA = np.random.default_rng(4).standard_normal((10, 3)) * 3


def test_the_loss_is_its_definition(line):
    assert distance(line, THETA) < 1e-3


@pytest.mark.parametrize("bug", ["scatter without noise", "no noise on the data", "h instead of its square"])
def test_planted_bugs_fail_the_same_test(line, bug):
    assert distance(line, THETA, bug=bug) > 1e-2


def test_in_the_plane_the_rule_for_the_noise_is_nearly_exact(random_method):
    """Sixteen rules averaged, on networks rougher than trained ones."""
    posterior = random_method(2, 3, noise_levels=LEVELS, weight=WEIGHT).build_posterior(data(12, 2), beta=0.7)
    assert distance(posterior, THETA[:4]) < 0.05


def test_the_posterior_has_the_mean_and_precision_of_its_loss(random_method):
    posterior = random_method(1, 3, noise_levels=LEVELS, resolution=0.0).build_posterior(data(30, 1), beta=0.7)
    theta = np.random.default_rng(5).standard_normal((50, 3))
    density = posterior.prior.log_prob(theta) - 0.7 * posterior.n * posterior.loss(theta)
    assert np.ptp(posterior.log_prob(theta) - density) < 1e-8 * np.ptp(density)


@pytest.mark.parametrize("d_x", [1, 2])
def test_update_is_exact_in_any_order(random_method, d_x):
    x = data(50, d_x)
    first = random_method(d_x, 3, noise_levels=LEVELS).build_posterior(x[:30], beta=0.4)
    together, parts = first.update(x[30:]), first.update(x[40:]).update(x[30:40])
    np.testing.assert_allclose(parts.mean, together.mean, rtol=1e-9)
    np.testing.assert_allclose(parts.covariance, together.covariance, rtol=1e-9)
    np.testing.assert_allclose(together.statistics.total.A, total_loss(first.statistics.loss, x).A, rtol=1e-9)
    assert len(together.weights) == 50


@pytest.mark.parametrize("d_x", [1, 2])
def test_each_loss_adds_up_and_influence_leaves_one_out(random_method, d_x):
    x = data(30, d_x)
    posterior = random_method(d_x, 3, noise_levels=LEVELS, resolution=0.3).build_posterior(x, beta=0.4)
    each = [np.concatenate(parts) for parts in zip(*posterior.statistics.each(), strict=True)]
    for own, total in zip(each, posterior.statistics.total, strict=True):
        np.testing.assert_allclose(own.sum(axis=0), total, rtol=1e-9)
    influence = posterior.influence()
    for i in (0, 17):
        left = posterior.statistics._replace(total=total_loss(posterior.statistics.loss, np.delete(x, i, axis=0)))
        left = ConjugatePosterior(posterior.provenance, posterior.prior, left, 0.4, resolution=0.3)
        inverse = np.linalg.inv(left.covariance)
        change, step = inverse @ posterior.covariance, left.mean - posterior.mean
        expected = 0.5 * (np.trace(change) - 3 - np.linalg.slogdet(change)[1] + step @ inverse @ step)
        assert influence[i] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("d_x", [1, 2])
def test_reach_counts_observations_by_their_distance_before_noise(random_method, d_x):
    method, x = random_method(d_x, 2, noise_levels=LEVELS), data(30, d_x)
    plain, reaching = (
        method.build_posterior(x, beta=0.1, weight=nsm.weights.PlateauIMQ(2.0, 1.0, cutoff_radius=reach))
        for reach in (None, 3.0)
    )
    location, scatter = plain.location_scatter
    distance = np.sqrt(np.einsum("ni,ij,nj->n", x - location, np.linalg.inv(scatter), x - location))
    expected = (1 + np.maximum(distance - 3, 0) ** 2) ** -2.0
    assert expected.min() < 1e-3 < 0.9 < np.median(expected)
    A, B = (
        [
            np.concatenate([getattr(part, name) for part in each_loss(one.statistics.loss, x)])
            for one in (plain, reaching)
        ]
        for name in ("A", "B")
    )
    np.testing.assert_allclose(A[1], expected[:, None, None] * A[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(B[1], expected[:, None] * B[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(total_loss(reaching.statistics.loss, x).A, A[1].sum(axis=0), rtol=1e-9, atol=1e-12)


def test_a_batch_is_its_data_sets_one_by_one(random_method):
    method = random_method(1, 3, noise_levels=LEVELS)
    x = np.random.default_rng(0).standard_normal((4, 40, 1))
    x[:, 0] = 100.0
    batch = method.build_posteriors(x, beta=0.5)
    for i, dataset in enumerate(x):
        alone = method.build_posterior(dataset, beta=0.5)
        np.testing.assert_allclose(batch.mean[i], alone.mean, rtol=1e-8)
        np.testing.assert_allclose(batch.covariance[i], alone.covariance, rtol=1e-8)


def test_a_batch_is_calibrated_one_by_one(random_method):
    method = random_method(1, 3, noise_levels=LEVELS, excess=None)
    x = np.random.default_rng(1).standard_normal((3, 40, 1))
    batch = method.build_posteriors(x, seed=5)
    for i, dataset in enumerate(x):
        alone = method.build_posterior(dataset, seed=5 + i)
        assert batch.beta[i] == alone.beta
        np.testing.assert_array_equal(batch.mean[i], alone.mean)
        np.testing.assert_array_equal(batch.covariance[i], alone.covariance)


def test_many_observations_are_summed_in_blocks(random_method):
    x = data(70_000, 1)
    whole = random_method(1, 2, noise_levels=LEVELS).build_posterior(x, beta=0.1)
    parts = [total_loss(whole.statistics.loss, part) for part in np.split(x, [100, 5000])]
    np.testing.assert_allclose(sum(part.A for part in parts), whole.statistics.total.A, rtol=1e-9)


def test_resamples_count_observations(random_method):
    posterior = random_method(1, 3, noise_levels=LEVELS).build_posterior(data(25, 1), beta=1.0)
    drawn = ClosedFormProblem(posterior.prior, posterior.statistics).resample(5, seed=5)
    rng = np.random.default_rng(5)
    for b in range(5):
        expected = total_loss(posterior.statistics.loss, posterior.x[rng.integers(25, size=25)])
        for got, want in zip(drawn.losses, expected, strict=True):
            np.testing.assert_allclose(got[b], want, rtol=1e-8)


@pytest.mark.parametrize("far", [1e20, 1e150, 1e300])
def test_absurd_observations_do_not_break_anything(random_method, far):
    x = data(40, 1)
    x[:2] = [[far], [-far]]
    posterior = random_method(1, 3, noise_levels=LEVELS).build_posterior(x, beta=1.0)
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.influence()).all()
    assert posterior.weights[:2].max() < 1e-6


def test_no_direction_is_known_better_than_the_resolution(random_method):
    method = random_method(1, 3, noise_levels=LEVELS, resolution=0.3)
    posterior = method.build_posterior(data(2000, 1), beta=1.0)
    S = np.linalg.cholesky(posterior.prior.covariance)
    spreads = np.sqrt(np.linalg.eigvalsh(np.linalg.solve(S, np.linalg.solve(S, posterior.covariance).T)))
    assert spreads.min() == pytest.approx(0.3, rel=1e-6)
    assert posterior.learning_rates.max() <= 1
    assert "there the learning rate was lowered" in posterior.warnings[-1]
    unbounded = gaussian_posterior(posterior.prior, posterior.statistics.total, 1.0)
    nearly = gaussian_posterior(posterior.prior, posterior.statistics.total, 1.0, 1e-8)
    for got, want in zip(nearly, unbounded, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    λ, b = diagonalise(posterior.prior, posterior.statistics.total)[1::2]
    k = 2 * posterior.learning_rates
    assert (k * λ <= (0.3**-2 - 1) * (1 + 1e-9)).all()
    t = np.linalg.solve(S, posterior.mean - posterior.prior.mean)
    np.testing.assert_allclose((t**2).sum(), ((k * b / (1 + k * λ)) ** 2).sum(), rtol=1e-9)


@pytest.mark.parametrize("option", [{"scaling": "robust-asinh"}, {"whiten": False}], ids=str)
def test_noise_needs_an_affine_scaling_and_whitened_coordinates(option):
    prior = nsm.GaussianPrior([0.0], [1.0])
    with pytest.raises(nsm.InputError, match="`noise_levels`"):
        nsm.NSMBayesConj(prior, **option)
    nsm.NSMBayesConj(prior, noise_levels=(0.0,), **option)


def test_coverage_with_a_resolution_equals_posteriors_built_one_by_one(random_method):
    posterior = random_method(1, 3, noise_levels=LEVELS).build_posterior(data(60, 1), beta=1.0)
    drawn, hat = (
        ClosedFormProblem(posterior.prior, posterior.statistics).resample(100, seed=1).losses,
        posterior.mean + 0.5,
    )
    curve = coverage_curve(posterior.prior, drawn, 0.9, 0.5)
    expected = []
    for beta in (0.01, 1.0):
        mean, precision = gaussian_posterior(posterior.prior, drawn, beta, 0.5)
        squares = np.einsum("bi,bij,bj->b", hat - mean, precision, hat - mean)
        expected.append((squares <= curve.threshold).mean())
    np.testing.assert_allclose(curve(np.array([0.01, 1.0]), hat), expected)
    assert not np.allclose(curve(1.0, hat), coverage_curve(posterior.prior, drawn, 0.9)(1.0, hat))


def test_a_model_that_is_linear_in_theta_is_learned_exactly():
    """x ~ N(theta, 1): the posterior of 50 clean observations at beta = 1 without a weight is nearly Bayes' own."""
    rng = np.random.default_rng(1)
    prior = nsm.GaussianPrior([0.0], [4.0])
    theta = prior.sample((12_000,), 0)
    method = nsm.NSMBayesConj(prior, weight=nsm.weights.Constant(), scatter="sample", excess=None, resolution=0.0)
    settings = nsm.TrainingSettings(learning_rate=1e-2, max_epochs=25, schedule="cosine")
    method.append_simulations(theta, theta + rng.standard_normal(theta.shape)).train(settings=settings, progress=False)
    x = 1.5 + rng.standard_normal((50, 1))
    posterior = method.build_posterior(x, beta=1.0)
    exact = Quadratic(np.full((1, 1), 25.0), -x.sum(axis=0) / 2, np.zeros(()))
    mean, precision = gaussian_posterior(prior, exact, 1.0)
    assert abs(posterior.mean[0] - mean[0]) < 0.5 / np.sqrt(precision[0, 0])
    assert posterior.std[0] == pytest.approx(1 / np.sqrt(precision[0, 0]), rel=0.15)


@pytest.mark.parametrize("resolution", [1e-6, 0.1, 0.999])
def test_rates_of_directions_without_information(resolution):
    """A loss that says nothing of a direction, or next to nothing, leaves beta as it is, without an overflow."""
    rates = direction_rates(np.array([0.0, 1e-300, 2.0])[:, None], np.array([0.0, 1e-320, 1e-250]), resolution)
    np.testing.assert_array_equal(rates, np.broadcast_to([[0.0], [1e-300], [2.0]], (3, 3)))
    np.testing.assert_allclose(direction_rates(1e30, np.array([3.0]), resolution), (resolution**-2 - 1) / 6)
