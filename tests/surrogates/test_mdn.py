import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import mdn
from support.reference import log_normal

from nsmbayes.surrogates import Frame, MixtureDensityNetwork, Standardiser, init_mixture_density_network
from nsmbayes.surrogates.mixture import FactoredMixture, GaussianMixture, _inverse, _score_and_laplacian
from nsmbayes.training import TrainingSettings, fit

FLOOR, CEILING = 0.05, 20.0


def random_network(
    d_x, d_theta=2, *, shake=0.3, floor=FLOOR, ceiling=CEILING, components=4, factor="covariance"
) -> MixtureDensityNetwork:
    """A network in double precision with noise on every weight, in units of x and theta that are not its own."""
    rng = np.random.default_rng(0)
    scale_x, scale_theta = (
        Standardiser(jnp.asarray(rng.standard_normal(d)), jnp.asarray(rng.uniform(0.5, 2.0, d)), asinh=False)
        for d in (d_x, d_theta)
    )
    model = init_mixture_density_network(
        jax.random.key(0),
        scale_x,
        scale_theta,
        components=components,
        hidden=(16, 16),
        floor=floor,
        ceiling=ceiling,
        factor=factor,
    )
    return jax.tree.map(
        lambda leaf: leaf + shake * rng.standard_normal(leaf.shape) if eqx.is_inexact_array(leaf) else leaf,
        model,
        is_leaf=lambda node: isinstance(node, Standardiser),
    )


def random_mixture(d, components=3) -> GaussianMixture:
    rng = np.random.default_rng(4)
    roots = rng.standard_normal((components, d, d)) / 2
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d)
    logits = jnp.asarray(rng.standard_normal(components))
    return GaussianMixture(
        jax.nn.log_softmax(logits), jnp.asarray(rng.standard_normal((components, d))), jnp.asarray(covariances)
    )


def log_normal_mixture(mixture, y):
    """log sum_k pi_k N(y; m_k, S_k), each component by JAX's own multivariate normal."""
    normal = jax.vmap(lambda m, S: log_normal(y, m, S))
    return jax.nn.logsumexp(mixture.log_weights + normal(mixture.means, mixture.covariances))


def test_density_integrates_to_one_in_one_dimension(x64):
    """By the trapezoidal rule in v, x = sinh(v): narrow components near zero, wide ones far out. Error below 1e-8."""
    model = random_network(1)
    v = jnp.linspace(-15, 15, 100_001)

    @jax.jit
    def integral(theta):
        return jnp.trapezoid(jnp.exp(model.log_probs(theta, jnp.sinh(v)[:, None])) * jnp.cosh(v), v)

    for theta in jnp.asarray([[0.0, 0.0], [2.0, -1.0], [-50.0, 1e6]]):
        np.testing.assert_allclose(integral(theta), 1.0, atol=1e-8)


def test_density_integrates_to_one_in_two_dimensions(x64):
    """On a grid of sinh-spaced points, 600 x 600; error below 1e-4."""
    model = random_network(2, floor=0.2, shake=0.2)
    v = jnp.linspace(-9, 9, 600)
    x = jnp.stack(jnp.meshgrid(jnp.sinh(v), jnp.sinh(v), indexing="ij"), axis=-1).reshape(-1, 2)
    density = jnp.exp(jax.jit(lambda x: model.log_probs(jnp.array([0.5, -0.5]), x))(x)).reshape(600, 600)
    integral = jnp.trapezoid(jnp.trapezoid(density * jnp.cosh(v), v) * jnp.cosh(v), v)
    np.testing.assert_allclose(integral, 1.0, atol=1e-4)


@pytest.mark.parametrize(
    ("d_x", "factor"),
    [(1, "covariance"), (2, "covariance"), (4, "covariance"), (2, "precision"), (6, "precision")],
)
def test_eigenvalues_of_the_covariances_are_bounded_whatever_theta(x64, d_x, factor):
    """Proposition 2: the bounds that the certificate uses, put to the test by networks with extreme outputs."""
    model = random_network(d_x, shake=2.0, factor=factor)
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((500, 2)) * 10 ** rng.uniform(-1, 6, (500, 1))
    mixtures = jax.jit(jax.vmap(lambda theta: model.mixture(model.scale_theta(theta))))(jnp.asarray(theta))
    eigenvalues = np.linalg.eigvalsh(np.asarray(mixtures.covariances))
    low, high = model.eigenvalue_bounds
    assert 0 < low <= FLOOR**2
    assert low - 1e-13 * eigenvalues.max() <= eigenvalues.min()
    assert eigenvalues.max() <= high * (1 + 1e-12)
    assert eigenvalues.max() > 1e2 * eigenvalues.min()  # the bounds were put to the test
    np.testing.assert_allclose(jnp.exp(mixtures.log_weights).sum(axis=1), 1.0, rtol=1e-12)


def test_smoothing_is_a_convolution(x64):
    """log density of smooth(h) against the convolution of the density with N(0, h^2), by the trapezoidal rule."""
    mixture, h = random_mixture(1), 0.7
    e = jnp.linspace(-9, 9, 4001)
    normal = jnp.exp(-0.5 * e**2) / jnp.sqrt(2 * jnp.pi)
    y = jnp.linspace(-4, 4, 9)

    @jax.jit
    def both(mixture):
        density = jnp.exp(mixture.smooth(0.0).log_prob((y[:, None] - h * e).reshape(-1, 1))).reshape(len(y), len(e))
        return mixture.smooth(h).log_prob(y[:, None]), jnp.log(jnp.trapezoid(density * normal, e))

    np.testing.assert_allclose(*both(mixture), rtol=1e-9)


@pytest.mark.parametrize("d", [1, 3])
def test_pull_back_is_the_density_of_y(x64, d):
    """q_y(y) = q_x(offset + L y) |det L|."""
    rng = np.random.default_rng(2)
    mixture, offset = random_mixture(d), jnp.asarray(rng.standard_normal(d))
    basis, y = jnp.asarray(rng.standard_normal((d, d))), jnp.asarray(rng.standard_normal((50, d)))

    @jax.jit
    def both(mixture):
        of_x = mixture.smooth(0.0).log_prob(offset + y @ basis.T)
        return mixture.pull_back(offset, basis).smooth(0.0).log_prob(y), of_x + jnp.linalg.slogdet(basis)[1]

    np.testing.assert_allclose(*both(mixture), rtol=1e-9)


@pytest.mark.parametrize("d_x", [1, 3])
def test_smoothed_derivatives_in_a_frame_equal_autodiff(x64, d_x):
    """`at` with noise h in y: the derivatives of log sum_k pi_k N(y; L^-1 (m_k - offset), L^-1 S_k L^-T + h^2 I)."""
    model = random_network(d_x)
    rng = np.random.default_rng(3)
    frame = Frame(jnp.asarray(rng.standard_normal(d_x)), jnp.asarray(2 * np.eye(d_x) + rng.uniform(-1, 1, (d_x, d_x))))
    theta, y = jnp.array([0.3, -1.0]), jnp.asarray(rng.standard_normal((50, d_x)) * 10 ** rng.uniform(-1, 3, (50, 1)))

    def log_prob(y, h):
        log_weights, means, covariances = model.mixture(model.scale_theta(theta))
        inverse = jnp.linalg.inv(frame.basis)
        in_x = model.scale_x.centre + model.scale_x.scale * means
        to_y = inverse * model.scale_x.scale
        noised = to_y @ covariances @ to_y.T + h**2 * jnp.eye(d_x)
        return log_normal_mixture(GaussianMixture(log_weights, (in_x - frame.offset) @ inverse.T, noised), y)

    @jax.jit
    def both(y, h):
        hessians = jax.vmap(jax.hessian(log_prob), (0, None))(y, h)
        scores = jax.vmap(jax.grad(log_prob), (0, None))(y, h)
        return model.derivatives_at(theta, frame, h)(y), (scores, jnp.trace(hessians, axis1=1, axis2=2))

    for h in (0.0, 0.1, 3.0):
        for part, expected in zip(*both(y, h), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-7, atol=1e-7)


def test_derivatives_far_out_are_finite_in_small_units(x64):
    """x of size 1e-2 seen at 1e150: the log density is finite there."""
    model = eqx.tree_at(lambda model: model.scale_x.scale, random_network(1), jnp.array([0.01]))
    theta, x = jnp.zeros(2), jnp.array([1e150])
    assert np.isfinite(model.log_prob(theta, x))
    assert np.isfinite(model.derivatives(theta, x, jnp.eye(1)).laplacian)


def test_asinh_is_refused():
    flat, bent = (Standardiser(jnp.zeros(1), jnp.ones(1), asinh=asinh) for asinh in (False, True))
    with pytest.raises(ValueError, match="affine"):
        init_mixture_density_network(jax.random.key(0), bent, flat, components=2, hidden=(4,), floor=0.1, ceiling=1.0)


# x | theta ~ 0.4 N(theta - 2, 0.3^2) + 0.6 N(theta / 2 + 1, exp(theta / 2)^2): skewed, bimodal, heteroscedastic.
def _simulate(rng, m):
    theta = rng.standard_normal(m)
    first = rng.uniform(size=m) < 0.4
    e = rng.standard_normal(m)
    return theta[:, None], np.where(first, theta - 2 + 0.3 * e, theta / 2 + 1 + np.exp(theta / 2) * e)[:, None]


def _exact_log_density(theta, x):
    def normal(mean, std):
        return -0.5 * ((x - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)

    components = np.log(0.4) + normal(theta - 2, 0.3), np.log(0.6) + normal(theta / 2 + 1, np.exp(theta / 2))
    return np.logaddexp(*components)[:, 0]


def _loss(model, t, z):
    return -model.network_log_prob(t, z)


def _gap_after_training(theta, x, *, components):
    """KL divergence of a trained network from the truth, estimated on fresh simulations: NLL minus the exact NLL."""
    identity = Standardiser(jnp.zeros(1), jnp.ones(1), asinh=False)
    model = init_mixture_density_network(
        jax.random.key(0), identity, identity, components=components, hidden=(32, 32), floor=0.02, ceiling=1e3
    )
    settings = TrainingSettings(
        learning_rate=5e-3, weight_decay=0.0, batch_size=256, max_epochs=8, patience=8, schedule="cosine"
    )
    model, _ = fit(model, _loss, theta, x, settings=settings, key=jax.random.key(1), progress=False)
    theta, x = _simulate(np.random.default_rng(6), 20_000)
    log_q = jax.jit(jax.vmap(model.log_prob))(jnp.asarray(theta, jnp.float32), jnp.asarray(x, jnp.float32))
    return (_exact_log_density(theta, x) - np.asarray(log_q, np.float64)).mean()


def test_training_approaches_the_exact_likelihood():
    """Within 0.01 nats of it. Broken variants stay away: one that sees shuffled thetas, one that must be Gaussian."""
    rng = np.random.default_rng(5)
    theta, x = _simulate(rng, 20_000)
    gap = _gap_after_training(theta, x, components=4)
    assert -0.005 < gap < 0.01
    assert _gap_after_training(rng.permutation(theta), x, components=4) > 0.3
    assert _gap_after_training(theta, x, components=1) > 0.3


@pytest.mark.parametrize("factor", ["covariance", "precision"])
def test_an_ensemble_is_the_average_of_its_networks(x64, factor):
    key, d = jax.random.key(0), 2
    scales = [Standardiser(jnp.zeros(k), jnp.ones(k), asinh=False) for k in (d, 3)]
    options = {"components": 4, "hidden": (8, 8), "floor": 0.1, "ceiling": 10.0, "factor": factor}
    ensemble = init_mixture_density_network(key, *scales, ensemble=3, **options)
    members = [init_mixture_density_network(k, *scales, **options) for k in jax.random.split(key, 3)]
    theta, x = jnp.array([0.1, -0.4, 1.0]), jnp.array([[0.3, -0.2], [5.0, 1.0]])
    log_probs = eqx.filter_jit(lambda network: network.log_probs(theta, x))
    densities = jnp.stack([jnp.exp(log_probs(member)) for member in members])
    np.testing.assert_allclose(log_probs(ensemble), jnp.log(densities.mean(axis=0)), rtol=1e-6)
    each = jnp.stack([-jnp.log(d)[0] for d in densities]).mean()
    loss = eqx.filter_jit(lambda network: network.training_loss(theta, x[0]))(ensemble)
    assert float(loss) == pytest.approx(float(each), rel=1e-6)


@pytest.mark.parametrize(
    ("d", "factor"),
    [(2, "precision"), (7, "precision"), (2, "covariance"), (4, "covariance"), (6, "covariance")],
)
def test_what_is_trained_is_the_density_of_the_mixture(x64, d, factor):
    """The log density by products with a factor, or by one that is written out, and by the covariances themselves."""
    model = random_network(d, factor=factor)
    rng = np.random.default_rng(2)
    t, z = jnp.asarray(rng.standard_normal((50, 2))), jnp.asarray(3 * rng.standard_normal((50, d)))
    trained = jax.jit(jax.vmap(model.network_log_prob))(t, z)
    expected = jax.jit(jax.vmap(lambda t, z: model.mixture(t).smooth(0.0).log_prob(z[None])[0]))(t, z)
    np.testing.assert_allclose(trained, expected, rtol=1e-8)


@pytest.mark.parametrize("d", [6, 9])
def test_many_dimensions_by_products_equal_autodiff(x64, d):
    """Smoothed, in a frame, beyond the dimension up to which everything is unrolled."""
    model, rng = random_network(d, factor="precision"), np.random.default_rng(3)
    frame = Frame(
        jnp.asarray(rng.standard_normal(d)), jnp.asarray(np.tril(rng.standard_normal((d, d))) + 2 * np.eye(d))
    )
    theta, y = jnp.array([0.2, -0.3]), jnp.asarray(2 * rng.standard_normal((20, d)))
    score, laplacian = jax.jit(lambda y: model.derivatives_at(theta, frame, 0.5)(y))(y)
    D = frame.basis / model.scale_x.scale[:, None]
    smoothed = model.mixture(model.scale_theta(theta)).pull_back(model.scale_x(frame.offset), D).smooth(0.5)

    def log_q(y):
        return smoothed.log_prob(y[None])[0]

    np.testing.assert_allclose(score, jax.jit(jax.vmap(jax.grad(log_q)))(y), rtol=1e-8)
    expected = jax.jit(jax.vmap(lambda y: jnp.trace(jax.hessian(log_q)(y))))(y)
    np.testing.assert_allclose(laplacian, expected, rtol=1e-7, atol=1e-9)


def test_an_ensemble_trains_each_network_as_if_it_were_alone():
    """Gradients do not mix: a step of the ensemble moves every network as its own step would."""
    scales = [Standardiser(jnp.zeros(1), jnp.ones(1), asinh=False)] * 2
    options = {"components": 2, "hidden": (4,), "floor": 0.1, "ceiling": 10.0}
    ensemble = init_mixture_density_network(jax.random.key(0), *scales, ensemble=2, **options)
    first = init_mixture_density_network(jax.random.split(jax.random.key(0), 2)[0], *scales, **options)
    t, z = jnp.array([0.3]), jnp.array([-0.7])

    @eqx.filter_jit
    def gradient(model):
        return eqx.filter_grad(lambda m: m.training_loss(t, z))(model).layers[0].weight

    np.testing.assert_allclose(2 * gradient(ensemble)[0], gradient(first), rtol=1e-5)


@pytest.mark.parametrize("d", [2, 3, 6, 9])
def test_inverses_written_out_are_those_of_the_library(x64, d):
    rng = np.random.default_rng(d)
    A = rng.standard_normal((7, d, d))
    S = jnp.asarray(A @ A.transpose(0, 2, 1) + 0.01 * np.eye(d))
    inverses, log_dets = jax.jit(_inverse)(S)
    np.testing.assert_allclose(inverses @ S, np.tile(np.eye(d), (7, 1, 1)), atol=1e-8)
    np.testing.assert_allclose(log_dets, np.linalg.slogdet(S)[1], rtol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_gradients_in_the_mixture_equal_autodiff(x64, d):
    """The hand-written gradient of score and Laplacian, also far out, where some components underflow."""
    rng = np.random.default_rng(5)
    mixture, y = random_mixture(d), jnp.asarray(rng.standard_normal((40, d)) * 10 ** rng.uniform(-1, 3, (40, 1)))
    weights = jnp.asarray(rng.standard_normal((40, d + 1)) / (1 + np.asarray(y**2).sum(axis=1, keepdims=True)))

    def total(mixture, y, derivatives):
        score, laplacian = derivatives(mixture.smooth(0.3), y)
        return (weights[:, :-1] * score * score).sum() + (weights[:, -1] * laplacian).sum()

    ours = jax.jit(jax.grad(lambda m, y: total(m, y, FactoredMixture.derivatives), argnums=(0, 1)))(mixture, y)
    autodiff = jax.jit(jax.grad(lambda m, y: total(m, y, _score_and_laplacian), argnums=(0, 1)))(mixture, y)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(autodiff), strict=True):
        if mine.ndim == 3:  # covariances are symmetric, so only the symmetric part of their gradient counts
            mine, other = (gradient + gradient.transpose(0, 2, 1) for gradient in (mine, other))
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10 * np.abs(other).max())


def test_second_derivatives_pass_through(x64):
    """Differences of gradients against autodiff through the hand-written gradient."""
    mixture, y = random_mixture(2), jnp.asarray(np.random.default_rng(6).standard_normal((20, 2)))

    def total(shift):
        score, laplacian = mixture._replace(means=mixture.means + shift).smooth(0.2).derivatives(y)
        return (score**2).sum() + laplacian.sum()

    at, step = jnp.array([0.1, -0.2]), 1e-5
    gradient = jax.jit(jax.grad(total))
    differences = [(gradient(at + step * e) - gradient(at - step * e)) / (2 * step) for e in jnp.eye(2)]
    np.testing.assert_allclose(jax.jit(jax.hessian(total))(at), np.stack(differences), rtol=1e-6)


def test_precision_factors_of_one_column(x64):
    """A factor without entries below its diagonal: log density and mixture agree."""
    density = mdn(1, factor="precision")
    theta, x = jnp.array([0.3, -0.2]), jnp.array([[0.4], [-1.0]])
    mixture = density.mixture(density.scale_theta(theta)).smooth(0.0)
    expected = mixture.log_prob(density.scale_x(x)) - jnp.log(density.scale_x.scale).sum()
    np.testing.assert_allclose(density.log_probs(theta, x), expected, rtol=1e-12)


def test_derivatives_on_lines_equal_autodiff(x64):
    """Rows of points with a noise level each, also far out."""
    mixture, rng = random_mixture(1), np.random.default_rng(7)
    h, y = jnp.array([0.0, 0.2, 5.0]), jnp.asarray(rng.standard_normal((3, 30)) * 10 ** rng.uniform(-1, 3, (3, 30)))

    def log_prob(y, h):
        return log_normal_mixture(mixture._replace(covariances=mixture.covariances + h**2 * jnp.eye(1)), y[None])

    def at_points(function):
        return jax.jit(jax.vmap(jax.vmap(function, (0, None))))(y, h)

    score, laplacian = jax.jit(mixture.line_derivatives)(h, y)
    np.testing.assert_allclose(score, at_points(jax.grad(log_prob)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(laplacian, at_points(jax.grad(jax.grad(log_prob))), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(jax.jit(mixture.line_scores)(h, y), score, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_derivatives_by_polynomials_equal_those_by_residuals(x64, d):
    """At points up to a thousand scales away, from a mixture far from the origin; and gradients of both."""
    mixture, rng = random_mixture(d), np.random.default_rng(8)
    mixture = mixture._replace(means=mixture.means + 100.0)
    y = 100 + jnp.asarray(rng.standard_normal((40, d)) * 10 ** rng.uniform(-1, 3, (40, 1)))

    def by_residuals(means, h):
        return mixture._replace(means=means).smooth(h).derivatives(y)

    def by_polynomials(means, h):
        return mixture._replace(means=means).smooth(h).polynomials().derivatives(y)

    for h in (0.0, 0.5):
        score, laplacian = jax.jit(by_polynomials)(mixture.means, h)
        exact = jax.jit(by_residuals)(mixture.means, h)
        squares = 1 + np.asarray((exact.score**2).sum(axis=1))
        np.testing.assert_allclose(score, exact.score, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_less(np.abs(laplacian - exact.laplacian) / squares, 1e-10)
        slopes = [
            jax.jit(jax.grad(lambda means, f=f, h=h: (f(means, h).score[:20] * jnp.arange(20.0)[:, None]).sum()))
            for f in (by_polynomials, by_residuals)
        ]
        np.testing.assert_allclose(slopes[0](mixture.means), slopes[1](mixture.means), rtol=1e-6, atol=1e-5)
