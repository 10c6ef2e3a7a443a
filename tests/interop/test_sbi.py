"""Estimators that sbi has trained, in this package: the same numbers, the same derivatives, a robust posterior."""

import contextlib
import copy
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sbi")

from sbi.inference import NLE  # noqa: E402
from sbi.neural_nets import likelihood_nn  # noqa: E402
from sbi.neural_nets.embedding_nets import FCEmbedding  # noqa: E402
from sbi.utils import BoxUniform, MultipleIndependent  # noqa: E402

import nsmbayes as nsm  # noqa: E402
from nsmbayes.interop import adopt, density_from_sbi  # noqa: E402
from nsmbayes.priors import as_prior, unconstrained  # noqa: E402
from nsmbayes.surrogates import Frame  # noqa: E402

# said by sbi of what these tests do on purpose: train briefly, and a flow in one dimension
pytestmark = [
    pytest.mark.filterwarnings("ignore:Maximum number of epochs:UserWarning"),
    pytest.mark.filterwarnings("ignore:In one-dimensional output space:UserWarning"),
]

PRIOR = torch.distributions.MultivariateNormal(torch.tensor([0.0, 0.0]), torch.diag(torch.tensor([4.0, 0.25])))
UNIT = BoxUniform(torch.zeros(1), torch.ones(1))
GAUSSIAN_FLOW = pytest.mark.filterwarnings("ignore:.*is an affine flow in one dimension:UserWarning")
KINDS = [("mdn", 1), ("mdn", 3), pytest.param("maf", 1, marks=GAUSSIAN_FLOW), ("maf", 3)]


def simulations(m, d_x, *, seed=0):
    """x_j = 100 + 20 (theta_1 + exp(theta_2) e_j), the e_j correlated: far from standardised."""
    torch.manual_seed(seed)
    theta, e = PRIOR.sample((m,)), torch.randn(m, d_x)
    return theta, 100 + 20 * (theta[:, :1] + torch.exp(theta[:, 1:]) * (e + 0.5 * e[:, :1]))


def train(kind, theta, x, **options):
    torch.manual_seed(1)
    trainer = NLE(PRIOR, density_estimator=kind, show_progress_bars=False)
    return trainer.append_simulations(theta, x).train(**({"max_num_epochs": 2} | options))


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """sbi writes logs into the working directory."""
    with contextlib.chdir(tmp_path_factory.mktemp("sbi")):
        yield


@pytest.fixture(scope="module")
def trained():
    """Each kind of estimator, trained once."""
    cache = {}

    def get(kind, d_x):
        if (kind, d_x) not in cache:
            cache[kind, d_x] = train(kind, *simulations(500, d_x))
        return cache[kind, d_x]

    return get


def numbers(*tensors):
    return [jnp.asarray(t.numpy(), jnp.float64) for t in tensors]


def torch_log_prob(estimator, theta, x):
    return estimator.log_prob(x[None], theta)[0].detach().numpy()


log_probs = eqx.filter_jit(lambda density, theta, x: jax.vmap(density.log_prob)(theta, x))


def in_double(estimator, theta, x):
    return copy.deepcopy(estimator).double(), theta.double(), x.double()


@pytest.mark.parametrize(("kind", "d_x"), KINDS)
def test_log_prob_is_that_of_sbi(x64, trained, kind, d_x):
    estimator, (theta, x) = trained(kind, d_x), simulations(1000, d_x, seed=2)
    x[:50] *= 3  # and far out
    ours = jax.vmap(density_from_sbi(estimator).log_prob)(*numbers(theta, x))
    np.testing.assert_allclose(ours, torch_log_prob(estimator, theta, x), rtol=1e-5)
    np.testing.assert_allclose(ours, torch_log_prob(*in_double(estimator, theta, x)), rtol=1e-7)


@GAUSSIAN_FLOW
@pytest.mark.parametrize("d_x", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", ["mdn", "maf"])
def test_a_method_from_sbi_is_saved_and_computes_the_same(x64, trained, tmp_path, kind, d_x):
    """At 10,000 points, with sbi in double precision, and where there is no torch afterwards."""
    estimator, (theta, x) = trained(kind, d_x), simulations(10_000, d_x, seed=2)
    method = nsm.from_sbi(estimator, PRIOR, theta[:500], x[:500])
    theirs, points = torch_log_prob(*in_double(estimator, theta, x)), numbers(theta, x)
    for one in (method, nsm.load(method.save(tmp_path / "model"))):
        ours = log_probs(one.density, *points)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(ours, log_probs(method.density, *points))
    code = f"import sys, nsmbayes; nsmbayes.load({str(tmp_path / 'model')!r}); sys.exit('torch' in sys.modules)"
    assert d_x != 2 or subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["mdn", "maf"])
@pytest.mark.parametrize(
    "embedding",
    [
        torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4), torch.nn.SiLU()),
        FCEmbedding(2, output_dim=3, num_layers=2, num_hiddens=6),
    ],
    ids=["layers", "sbi"],
)
def test_embeddings_of_theta_that_are_plain_layers(x64, tmp_path, kind, embedding):
    theta, x = simulations(300, 2)
    estimator = likelihood_nn(kind, embedding_net=copy.deepcopy(embedding), hidden_features=7)(theta, x)
    method = nsm.from_sbi(estimator, PRIOR, theta, x, method=nsm.NLE)
    theirs = torch_log_prob(*in_double(estimator, theta, x))
    for one in (method, nsm.load(method.save(tmp_path / "model"))):
        np.testing.assert_allclose(log_probs(one.density, *numbers(theta, x)), theirs, rtol=0, atol=1e-6)


def test_a_method_from_sbi_is_not_trained_again(trained):
    theta, x = simulations(50, 1)
    method = nsm.from_sbi(trained("mdn", 1), PRIOR, theta, x, draws=20)
    assert isinstance(method, nsm.NSMBayes)
    assert method.sampler.draws == 20
    with pytest.raises(nsm.InputError, match="not trained here"):
        method.train()
    with pytest.raises(nsm.InputError, match="`method` must be"):
        nsm.from_sbi(trained("mdn", 1), PRIOR, theta, x, method=nsm.NPE)


@pytest.mark.parametrize(("kind", "d_x"), KINDS)
def test_log_prob_of_many_points_and_of_the_network_agree_with_it(x64, trained, kind, d_x):
    density = density_from_sbi(trained(kind, d_x))
    (theta, *_), x = numbers(*simulations(20, d_x))
    one_by_one = [density.log_prob(theta, point) for point in x]
    np.testing.assert_allclose(density.log_probs(theta, x), one_by_one, rtol=1e-12)
    network = density.network_log_prob(density.scale_theta(theta), density.scale_x(x[0]))
    np.testing.assert_allclose(network - jnp.log(density.scale_x.scale).sum(), one_by_one[0], rtol=1e-12)


@pytest.mark.parametrize(("kind", "d_x"), KINDS)
def test_derivatives_are_those_of_autograd(x64, trained, kind, d_x):
    density = density_from_sbi(trained(kind, d_x))
    estimator, theta, x = in_double(trained(kind, d_x), *simulations(20, d_x, seed=3))
    basis = 5 * np.eye(d_x) + np.random.default_rng(0).standard_normal((d_x, d_x))
    frame = Frame(jnp.full(d_x, 90.0), jnp.asarray(basis))
    derivatives = eqx.filter_jit(density.derivatives)
    shared_work = eqx.filter_jit(lambda t, y: density.derivatives_at(t, frame, 0.0)(y))
    for t, point in zip(theta, x, strict=True):

        def log_prob(point, t=t):
            return estimator.log_prob(point[None, None], t[None])[0, 0]

        gradient = torch.autograd.functional.jacobian(log_prob, point).numpy()
        hessian = torch.autograd.functional.hessian(log_prob, point).numpy()
        score, laplacian = derivatives(*numbers(t, point), jnp.asarray(basis))
        np.testing.assert_allclose(score, basis.T @ gradient, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(laplacian, np.trace(basis.T @ hessian @ basis), rtol=1e-6, atol=1e-9)
        y = jnp.linalg.solve(frame.basis, jnp.asarray(point.numpy()) - frame.offset)
        shared = shared_work(jnp.asarray(t.numpy()), y[None])
        np.testing.assert_allclose(shared.score[0], score, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(shared.laplacian[0], laplacian, rtol=1e-6, atol=1e-9)


def test_a_mixture_is_smoothed_exactly(x64, trained):
    """Against the convolution of torch's density with noise, by quadrature, and its derivatives by differences."""
    h, scale, step = 0.7, 20.0, 1e-3
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    estimator, theta, x = in_double(trained("mdn", 1), *simulations(5, 1, seed=4))
    density = density_from_sbi(trained("mdn", 1))
    for t, point in zip(theta, x, strict=True):

        def log_smooth(y, t=t):
            points = torch.as_tensor(scale * (y - h * nodes))[:, None, None]
            return np.log(weights @ np.exp(estimator.log_prob(points, t[None])[:, 0].detach().numpy()))

        y = point.item() / scale
        below, here, above = (log_smooth(y + s) for s in (-step, 0, step))
        frame = Frame(jnp.zeros(1), jnp.array([[scale]]))
        score, laplacian = density.derivatives_at(jnp.asarray(t.numpy()), frame, h)(jnp.array([[y]]))
        np.testing.assert_allclose(score[0, 0], (above - below) / (2 * step), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(laplacian[0], (above - 2 * here + below) / step**2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["mdn", "maf"])
@pytest.mark.parametrize("z_score", ["none", "independent", "structured"])
def test_every_z_score(x64, kind, z_score):
    theta, x = simulations(200, 3)
    estimator = likelihood_nn(kind, z_score_theta=z_score, z_score_x=z_score, hidden_features=7)(theta, x)
    difference = jax.vmap(density_from_sbi(estimator).log_prob)(*numbers(theta, x)) - torch_log_prob(
        estimator, theta, x
    )
    if (kind, z_score) == ("mdn", "structured"):  # sbi counts the one scale of the three coordinates once
        difference += 2 * np.log(estimator._transform_scale.item())
    np.testing.assert_allclose(difference, 0, atol=2e-2 if z_score == "none" else 1e-4)


@GAUSSIAN_FLOW
@pytest.mark.parametrize("d_x", [1, 3])
@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("nsf", {}, "splines"),
        ("maf_rqs", {}, "splines"),
        ("made", {}, "twice differentiable"),
        ("zuko_maf", {}, "got ZukoFlow"),
        ("maf", {"use_batch_norm": True}, "batch normalisation"),
        ("maf", {"embedding_net": torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.GLU())}, "a GLU"),
        ("mdn", {"embedding_net": torch.nn.LayerNorm(2)}, "embedding network for theta with a LayerNorm"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_reason(kind, options, reason, d_x):
    estimator = likelihood_nn(kind, **options)(*simulations(50, d_x))
    with pytest.raises(nsm.InputError, match=f"`estimator`.*{reason}"):
        density_from_sbi(estimator)


@pytest.mark.parametrize("d_x", [1, 3])
def test_a_mixture_of_transformed_x_is_refused(x64, d_x):
    """sbi 0.26 takes the option for a mixture and does not transform: what it has then is converted."""
    theta, x = simulations(50, d_x)
    estimator = likelihood_nn("mdn", z_score_x="transform_to_unconstrained", x_dist=UNIT)(theta, x)
    if hasattr(estimator, "_prior_transform"):
        with pytest.raises(nsm.InputError, match=r"`estimator`.*no Gaussian mixture"):
            density_from_sbi(estimator)
    else:
        ours = jax.vmap(density_from_sbi(estimator).log_prob)(*numbers(theta, x))
        np.testing.assert_allclose(ours, torch_log_prob(*in_double(estimator, theta, x)), rtol=1e-7)


def test_other_hidden_networks_are_refused(trained):
    estimator = copy.deepcopy(trained("mdn", 1))
    estimator.net._hidden_net[1] = torch.nn.Softplus()
    with pytest.raises(nsm.InputError, match="hidden network"):
        density_from_sbi(estimator)


def test_weights_that_are_not_numbers_are_refused(trained):
    estimator = copy.deepcopy(trained("maf", 3))
    estimator.net._transform._transforms[1].autoregressive_net.final_layer.bias.data[0] = torch.nan
    with pytest.raises(nsm.InputError, match="`estimator` contains NaN"):
        density_from_sbi(estimator)


def test_what_is_no_estimator_is_refused(trained):
    trainer = NLE(PRIOR, show_progress_bars=False)
    for wrong in (None, "maf", trainer, trainer.build_posterior(trained("mdn", 1)), torch.nn.Linear(1, 1)):
        with pytest.raises(nsm.InputError, match="`estimator` must be what train"):
            density_from_sbi(wrong)


def test_a_flow_in_one_dimension_is_worth_a_warning(trained):
    with pytest.warns(UserWarning, match="conditional Gaussian") as caught:
        density_from_sbi(trained("maf", 1))
    assert caught[0].filename == __file__


def gaussian_prior():
    return as_prior(PRIOR)


def test_adopt_checks_its_arguments(trained):
    theta, x = simulations(50, 3)
    mdn, maf = trained("mdn", 3), trained("maf", 3)
    for arguments, reason in [
        ((nsm.NSMBayesConj(gaussian_prior()), mdn, theta, x), "`method`"),
        (("nle", mdn, theta, x), "`method`"),
        ((nsm.NLE(gaussian_prior()), "mdn", theta, x), "`estimator`"),
        ((nsm.NSMBayes(gaussian_prior()), maf, theta, x), "noise levels"),
        ((nsm.NLE(gaussian_prior()), mdn, theta[:, :1], x), "`theta` must have 2"),
        ((nsm.NLE(gaussian_prior()), mdn, theta, x[:, :2]), "`x` must have 3"),
        ((nsm.NLE(gaussian_prior()), mdn, theta, x * torch.nan), "`x`"),
        ((nsm.NLE(gaussian_prior()), mdn, theta[:10], x), "same number of rows"),
        ((nsm.NLE(nsm.GaussianPrior([0.0], [1.0])), mdn, theta, x), "`theta` must have 1"),
    ]:
        with pytest.raises(nsm.InputError, match=reason):
            adopt(*arguments)
        if isinstance(arguments[0], nsm.NLE | nsm.NSMBayes):
            with pytest.raises(nsm.NotTrainedError):
                _ = arguments[0].density


def test_a_flow_serves_nsm_bayes_without_levels():
    theta, x = simulations(300, 3)
    small = likelihood_nn("maf", num_transforms=2, hidden_features=5)(theta, x)
    method = nsm.NSMBayes(gaussian_prior(), noise_levels=(0,), chains=2, warmup=20, draws=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is short, and says so
        posterior = adopt(method, small, theta, x).build_posterior(x[:20], beta=0.1, seed=0)
    assert np.isfinite(posterior.draws).all()


@pytest.fixture(scope="module")
def methods():
    """NLE and NSM-Bayes on one mixture density network of sbi's, trained until it is of use."""
    theta, x = simulations(4000, 1)
    estimator = train("mdn", theta, x, max_num_epochs=15, learning_rate=5e-3)
    options = {"warmup": 150, "draws": 150}
    return [adopt(make(gaussian_prior(), **options), estimator, theta, x) for make in (nsm.NLE, nsm.NSMBayes)]


TRUTH = (1.0, 0.3)


def observations(n=60):
    torch.manual_seed(5)
    return 100 + 20 * (TRUTH[0] + 1.5 * np.exp(TRUTH[1]) * torch.randn(n, 1))


def test_outliers_move_nsm_bayes_less_than_nle(methods):
    clean = observations()
    contaminated = clean.clone()
    contaminated[:6] = -400.0
    moved = {}
    for method in methods:
        with warnings.catch_warnings():  # misled, NLE may have several modes; the outliers lie outside the simulations
            warnings.simplefilter("ignore", UserWarning)
            before, after = (method.build_posterior(x, seed=0) for x in (clean, contaminated))
        assert before.contains(TRUTH)
        assert after.contains(TRUTH) == (method.name == "nsm-bayes")
        moved[method.name] = np.abs(after.mean - before.mean).max()
    assert moved["nsm-bayes"] < 0.3 * moved["nle"]


def test_observations_outside_the_simulations_are_named(methods):
    x = observations()
    x[17] = 1e6
    with pytest.warns(UserWarning, match=r"1 of 60 observations lie outside .* \(rows 17\)"):
        methods[1].build_posterior(x, seed=0)


def test_torch_tensors_are_arrays():
    """Prior, parameters, simulations and observations as tensors, with a gradient too: the posterior is the same."""
    theta, x = simulations(500, 1)
    settings = nsm.TrainingSettings(max_epochs=2)
    means = []
    for convert in (lambda t: t.numpy(), lambda t: t, lambda t: t.clone().requires_grad_()):
        prior = nsm.GaussianPrior(convert(PRIOR.mean), convert(PRIOR.covariance_matrix))
        method = nsm.NSMBayesConj(prior).append_simulations(convert(theta), convert(x))
        method.train(0, settings=settings, progress=False)
        means.append(method.build_posterior(convert(observations()), beta=0.1, seed=0).mean)
    np.testing.assert_array_equal(means[0], means[1])
    np.testing.assert_array_equal(means[0], means[2])


D = torch.distributions


@pytest.mark.parametrize(
    "prior",
    [
        PRIOR,
        D.Independent(D.Normal(torch.tensor([1.0, 2.0]), 0.5 * torch.ones(2)), 1),
        D.Independent(D.Uniform(torch.tensor([1.0, 2.0]), 3 * torch.ones(2)), 1),
        BoxUniform(torch.tensor([-1.0, 0.0]), torch.tensor([2.0, 5.0])),
        MultipleIndependent([D.Normal(torch.zeros(1), torch.ones(1)), D.Gamma(torch.ones(1) * 2, torch.ones(1))]),
        MultipleIndependent([BoxUniform(torch.zeros(1), torch.ones(1)), D.LogNormal(torch.zeros(1), torch.ones(1))]),
        D.Independent(D.Beta(torch.ones(2) * 2, torch.ones(2) * 3), 1),
        D.Independent(D.StudentT(torch.ones(2) * 3, torch.zeros(2), torch.ones(2)), 1),
        D.Independent(D.Weibull(torch.ones(2) * 3, torch.ones(2) * 2), 1),
    ],
)
def test_priors(x64, prior):
    """As they are, wherever a prior is accepted."""
    theta = prior.sample((100,))
    converted = as_prior(prior)
    np.testing.assert_allclose(converted.log_prob(theta.numpy()), prior.log_prob(theta).numpy(), rtol=1e-5, atol=1e-5)
    assert nsm.NLE(prior).support.dim == unconstrained(prior).dim == 2
    assert nsm.simulate_sets(prior, nsm.NumpySimulator(lambda rng, t: t), m=3, n=2, seed=0)[0].shape == (3, 2)


@pytest.mark.parametrize(
    "prior",
    [None, D.Poisson(torch.ones(2)), torch.ones(2), D.Normal(torch.zeros(2, 2), 1.0), D.Dirichlet(torch.ones(2))],
)
def test_other_priors_are_refused(prior):
    with pytest.raises(nsm.InputError, match="`prior"):
        as_prior(prior)


def test_the_module_itself_is_light():
    code = "import sys, nsmbayes.interop.sbi; sys.exit(bool({'torch', 'sbi'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
