"""NLE and NSM-Bayes on a problem whose posterior is known: x ~ N(theta_1, exp(theta_2)^2)."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from support.effort import PriorSampler

import nsmbayes as nsm
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses import NLELoss
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import Target, log_prob, strategy
from nsmbayes.surrogates import MixtureDensityNetwork, Scalers

# the outliers lie where no simulation does, which is worth a warning of its own
pytestmark = pytest.mark.filterwarnings("ignore:.* lie outside the range of the simulations")

PRIOR = nsm.GaussianPrior([0.0, 0.0], [4.0, 0.25])
TRUTH = np.array([1.0, 0.3])
SETTINGS = nsm.TrainingSettings(
    learning_rate=5e-3, weight_decay=0.0, batch_size=256, max_epochs=30, patience=30, schedule="cosine"
)


MIXTURE = nsm.MDN(components=3, hidden=(24, 24))


def simulations(m, seed=0):
    theta = PRIOR.sample((m,), seed=seed)
    noise = np.random.default_rng(seed + 1).standard_normal((m, 1))
    return theta, theta[:, :1] + np.exp(theta[:, 1:]) * noise


@pytest.fixture(scope="module")
def nle():
    method = nsm.NLE(PRIOR, surrogate=MIXTURE, warmup=200, draws=300, parameter_names=("mean", "log sd"))
    return method.append_simulations(*simulations(20_000)).train(0, settings=SETTINGS, progress=False)


@pytest.fixture(scope="module")
def robust(nle):
    """Without calibration, which has tests of its own."""
    options = {"surrogate": MIXTURE, "warmup": 200, "draws": 300, "calibration": None}
    return nsm.NSMBayes(PRIOR, parameter_names=("mean", "log sd"), **options).adopt(nle)


def clean(n=60, seed=2):
    return TRUTH[0] + np.exp(TRUTH[1]) * np.random.default_rng(seed).standard_normal((n, 1))


def contaminated(n=60, seed=2):
    x = clean(n, seed)
    x[: n // 10] = -25.0
    return x


@pytest.fixture(scope="module")
def posterior(robust):
    return robust.build_posterior(contaminated(), seed=0)


def exact_posterior(x):
    """Mean and standard deviations on a fine grid, from the likelihood itself."""
    mean, log_sd = np.meshgrid(np.linspace(-2, 4, 400), np.linspace(-1.5, 2, 300), indexing="ij")
    density = PRIOR.log_prob(np.stack([mean, log_sd], -1))
    density -= len(x) * log_sd + 0.5 * ((x[:, 0] - mean[..., None]) ** 2).sum(-1) / np.exp(2 * log_sd)
    p = np.exp(density - density.max())
    p /= p.sum()
    moments = np.array([(p * mean).sum(), (p * log_sd).sum()])
    return moments, np.sqrt([(p * (mean - moments[0]) ** 2).sum(), (p * (log_sd - moments[1]) ** 2).sum()])


def test_nle_is_the_exact_posterior_up_to_its_surrogate(nle):
    mean, sd = exact_posterior(clean())
    posterior = nle.build_posterior(clean(), seed=0)
    assert posterior.converged
    assert (np.abs(posterior.mean - mean) < 0.5 * sd).all()
    np.testing.assert_allclose(posterior.std, sd, rtol=0.3)


@pytest.mark.slow
def test_outliers_move_nle_without_bound_and_nsm_bayes_only_so_far(nle, robust):
    """The influence of an outlier is bounded: it is the same at -25 and at -2500."""
    means = {}
    for far in (-25.0, -2500.0):
        x = contaminated()
        x[:6] = far
        posterior = robust.build_posterior(x, seed=0)
        assert posterior.contains(TRUTH)
        with warnings.catch_warnings():  # misled by outliers, NLE has several modes, which is worth a warning too
            warnings.simplefilter("ignore", UserWarning)
            misled = nle.build_posterior(x, seed=0)
        assert not misled.contains(TRUTH)
        means[far] = posterior.mean / posterior.std, misled.mean
    assert (np.abs(means[-25.0][0] - means[-2500.0][0]) < 0.75).all()
    assert np.abs(means[-25.0][1] - means[-2500.0][1]).max() > 3


def test_it_makes_no_difference_how_absurd_an_observation_is(robust):
    """A common code for missing values is the largest number there is."""
    draws = []
    for far in (1e100, 1e155, np.finfo(float).max):
        x = contaminated()
        x[:2] = [[far], [-far]]
        posterior = robust.build_posterior(x, seed=0)
        assert posterior.weights[:2].max() < 1e-6
        draws.append(posterior.draws)
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[2])


def test_posterior_object(posterior):
    assert posterior.sample((7, 3), seed=0).shape == (7, 3, 2)
    everything = posterior.draws.reshape(-1, 2)
    np.testing.assert_array_equal(np.sort(posterior.sample((1200,), seed=0), axis=0), np.sort(everything, axis=0))
    assert posterior.sample((5000,), seed=0).shape == (5000, 2)
    assert posterior.weights[:6].max() < 0.1
    assert posterior.weights.max() <= 1
    assert posterior.beta == 1.0
    assert posterior.contains(posterior.mean)
    assert not posterior.contains(posterior.mean + 100)
    text = posterior.summary()
    assert "log sd" in text
    assert "R-hat" in text
    influence = posterior.influence()
    assert influence.shape == (60,)
    assert (influence >= 0).all()
    assert posterior.to_arviz().posterior["mean"].shape == (4, 300)


def test_log_prob_is_unnormalised_and_says_so(posterior, nle):
    """Differences are those of prior and loss, at any points; for NLE those of prior times likelihood."""
    theta = np.array([[0.8, 0.2], [1.3, 0.4], [0.5, -0.1]])
    losses = np.array([posterior.losses(point).sum() for point in theta])
    expected = PRIOR.log_prob(theta) - posterior.beta * losses
    np.testing.assert_allclose(posterior.log_prob(theta), expected, rtol=1e-9)
    assert posterior.log_prob(theta[None]).shape == (1, 3)
    assert not posterior.normalised


def test_influence_equals_reweighting_by_hand(posterior):
    draws = posterior.draws.reshape(-1, 2)[::2]
    a = np.array([posterior.losses(theta)[20] for theta in draws])
    expected = np.log(np.mean(np.exp(a))) - a.mean()
    assert posterior.influence()[20] == pytest.approx(expected, rel=1e-6)


def test_same_seed_same_draws(robust, posterior):
    again, other = (robust.build_posterior(contaminated(), seed=seed) for seed in (0, 4))
    assert np.array_equal(posterior.draws, again.draws)
    assert not np.array_equal(posterior.draws, other.draws)


def test_new_data_of_the_same_shape_compile_nothing(robust, monkeypatch):
    traces = []
    mixture = MixtureDensityNetwork.mixture

    def counted(self, t):
        traces.append(1)
        return mixture(self, t)

    monkeypatch.setattr(MixtureDensityNetwork, "mixture", counted)
    robust.build_posterior(contaminated(50, seed=5), seed=0)
    first = len(traces)
    robust.build_posterior(contaminated(50, seed=6), seed=1)
    assert len(traces) == first > 0


@pytest.mark.parametrize("name", ["nle", "robust"])
def test_saved_methods_give_the_same_posterior(name, request, tmp_path):
    method = request.getfixturevalue(name)
    again = nsm.load(method.save(tmp_path / "model"))
    assert type(again) is type(method)
    before, after = (m.build_posterior(clean(), seed=1) for m in (method, again))
    np.testing.assert_array_equal(before.draws, after.draws)


def test_a_saved_posterior_knows_what_it_knew(posterior, tmp_path):
    loaded = nsm.load(posterior.save(tmp_path / "posterior"))
    for name in ("mean", "covariance", "std", "weights", "x", "draws", "beta", "converged", "parameter_names", "label"):
        assert np.array_equal(getattr(loaded, name), getattr(posterior, name)), name
    said = [line for line in posterior.summary().splitlines() if not line.startswith("Verdict:")]  # which is not kept
    assert loaded.summary().splitlines() == said
    assert np.array_equal(loaded.influence(), posterior.influence())
    assert np.array_equal(loaded.sample((5,), seed=3), posterior.sample((5,), seed=3))
    assert loaded.certificate.robust == posterior.certificate.robust
    assert [o.row for o in loaded.outliers(4)] == [o.row for o in posterior.outliers(4)]
    with pytest.raises(nsm.InputError, match="no network"):
        loaded.log_prob(np.zeros(2))


def test_observations_outside_the_simulations_are_named(nle):
    x = clean()
    x[17] = 25.0
    with pytest.warns(UserWarning, match=r"1 of 60 observations lie outside .* \(rows 17\)"):
        nle.build_posterior(x, seed=0)


def test_chains_that_disagree_say_so(nle):
    method = nsm.NLE(PRIOR, surrogate=MIXTURE, warmup=10, draws=10).adopt(nle)
    with pytest.warns(UserWarning, match="not converged"):
        posterior = method.build_posterior(clean(), seed=0)
    assert not posterior.converged
    assert "NOT CONVERGED" in posterior.summary()


@pytest.mark.parametrize(
    ("prior", "low", "high"),
    [
        (dist.Gamma(jnp.array([2.0]), 1.5).to_event(1), -12, 4),
        (dist.Uniform(jnp.array([-1.0]), 3.0).to_event(1), -30, 30),
        (dist.Normal(jnp.array([1.0]), 2.0).to_event(1), -20, 22),
    ],
)
def test_bounded_priors_are_densities_on_the_line(x64, prior, low, high):
    """The Jacobian is included: the density of the unconstrained parameter integrates to one."""
    seen = unconstrained(prior)
    grid = jnp.linspace(low, high, 20_001)[:, None]
    density = np.exp(jax.vmap(seen.log_prob)(grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(
        jax.vmap(lambda u: seen.unconstrain(seen.constrain(u)))(grid[8000:12000]), grid[8000:12000], atol=1e-6
    )


def test_target_density_is_prior_times_loss(x64, nle):
    loss = NLELoss(nle.density, jnp.asarray(clean()))
    target = Target(unconstrained(PRIOR), loss, jnp.asarray(0.3))
    theta = jnp.array([0.5, 0.1])
    log_q = eqx.filter_jit(nle.density.log_prob)
    expected = PRIOR.log_prob(np.asarray(theta)) + 0.3 * sum(float(log_q(theta, x)) for x in jnp.asarray(clean()))
    assert float(eqx.filter_jit(log_prob)(theta, target)) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(
    ("prior", "reason"),
    [
        ("normal", "GaussianPrior or IndependentPrior"),
        (dist.Normal(0.0, 1.0), "over one vector"),
        (dist.Normal(jnp.zeros(3), 1.0), "over one vector"),
        (dist.Poisson(jnp.ones(2)).to_event(1), "continuous"),
        (dist.Uniform(jnp.zeros(2), jnp.inf).to_event(1), "draws that are not finite"),
        (dist.Normal(jnp.zeros(2), jnp.inf).to_event(1), "draws that are not finite"),
    ],
)
def test_bad_priors(prior, reason):
    with pytest.raises(nsm.InputError, match=reason):
        nsm.NLE(prior)


@pytest.mark.parametrize(
    "options",
    [
        {"surrogate": "spline"},
        {"surrogate": 3},
        {"scaling": "robust-asinh"},
        {"sampler": "gibbs"},
        {"chains": 1},
        {"warmup": 0},
        {"draws": 0},
        {"parameter_names": ("one",)},
        {"grid_steps": (-1.0,)},
        {"grid_steps": "counts"},
    ],
)
def test_bad_options(options):
    with pytest.raises(nsm.InputError, match=f"`({'|'.join(options)})`"):
        nsm.NLE(PRIOR, **options)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (nsm.MDN, {"components": 0}),
        (nsm.MDN, {"hidden": (0,)}),
        (nsm.MDN, {"hidden": 16}),
        (nsm.MDN, {"hidden": ()}),
        (nsm.MDN, {"floor": 0.0}),
        (nsm.MDN, {"floor": 2.0, "ceiling": 1.0}),
        (nsm.MDN, {"ensemble": 0}),
        (nsm.MAF, {"hidden": 0}),
        (nsm.MAF, {"transforms": 0}),
        (nsm.MAF, {"depth": 1.5}),
        (nsm.MAF, {"base_hidden": ("wide",)}),
        (nsm.MAF, {"base_floor": -1.0}),
    ],
)
def test_bad_options_of_a_surrogate(config, options):
    with pytest.raises(nsm.InputError, match=f"`({'|'.join(options)})`"):
        config(**options)


def test_an_option_that_a_surrogate_does_not_have_is_an_error():
    with pytest.raises(TypeError, match="components"):
        nsm.MAF(components=5)
    with pytest.raises(TypeError, match="components"):
        nsm.NSMBayes(PRIOR, surrogate="maf", components=5)


def test_a_prior_that_was_not_simulated_is_noticed(nle):
    theta, x = simulations(1600)
    near = np.flatnonzero(np.abs(theta[:, 0]) < 1)[:400]  # as many as below: one shape, one compilation
    method = nsm.NLE(PRIOR, surrogate=nsm.MDN(components=2, hidden=(4,)), parameter_names=("mean", "log sd"))
    with pytest.warns(UserWarning, match=r"\d+% of the prior lies where mean was never simulated"):
        method.append_simulations(theta[near], x[near]).train(
            settings=nsm.TrainingSettings(max_epochs=1), progress=False
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nsm.NLE(PRIOR, surrogate=nsm.MDN(components=2, hidden=(4,))).append_simulations(theta[:400], x[:400]).train(
            settings=nsm.TrainingSettings(max_epochs=1), progress=False
        )


@pytest.mark.parametrize(("columns", "widths", "epochs"), [(1, [64, 64], 40), (2, [64, 64, 64], 100)])
def test_a_mixture_of_several_columns_is_deeper_and_trained_for_longer(columns, widths, epochs, tmp_path):
    theta, x = simulations(200)
    method = nsm.NLE(PRIOR).append_simulations(theta, np.hstack([x, theta[:, :1] - x])[:, :columns])
    assert method.default_training(columns).max_epochs == epochs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few simulations do not cover the prior
        method.adopt(method.surrogate.build(jax.random.key(0), Scalers.blank(columns, 2)))
    loaded = nsm.load(method.save(tmp_path / "model"))
    for one in (method, loaded):
        assert isinstance(one.density, MixtureDensityNetwork)
        assert [layer.out_features for layer in one.density.layers[:-1]] == widths
    many = method.default_training(6)
    assert (many.max_epochs, many.batch_size, many.validation_fraction) == (70, 256, 0.1)
    flow = nsm.NSMBayes(PRIOR, surrogate="maf")
    assert flow.default_training(columns).max_epochs == flow.default_training(6).max_epochs == 40


def test_modes_of_a_posterior_with_one(posterior):
    modes = posterior.modes()
    assert modes.height[0] == 0
    assert (modes.height <= 0).all()
    assert modes.fraction[0] > 0.99
    assert (np.abs(modes.theta[0] - posterior.mean) < posterior.std).all()


def test_lattice_data_are_spread_over_their_steps():
    """Rounded to halves, x takes few values; with the step known, training and posterior see no two alike."""
    theta, x = simulations(500)
    x = np.round(2 * x) / 2
    seen = []

    class Watched(nsm.NLE):
        def _dequantise(self, x, *stream):
            seen.append((x, super()._dequantise(x, *stream)))
            return seen[-1][1]

    method = Watched(PRIOR, surrogate=nsm.MDN(components=2, hidden=(4,)), warmup=10, draws=10, grid_steps=(0.5,))
    method.append_simulations(theta, x).train(settings=nsm.TrainingSettings(max_epochs=1), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        method.build_posterior(np.round(2 * clean()) / 2, seed=0)
    assert len(seen) == 2
    for before, after in seen:
        assert len(np.unique(before)) < len(before) / 2
        assert len(np.unique(after)) == len(after)
        np.testing.assert_array_equal(np.round(2 * after) / 2, before)
    with pytest.raises(nsm.InputError, match="`grid_steps` must have 1 step"):
        nsm.NLE(PRIOR, grid_steps=(1.0, 1.0)).append_simulations(theta, x).train(progress=False)


def test_an_ensemble_of_networks_is_a_method_like_any_other(tmp_path):
    """Of its posterior the density is compared: a sampler would take long to compile and sees nothing else of it."""
    method = nsm.NLE(PRIOR, surrogate=nsm.MDN(components=2, hidden=(8,), ensemble=3), sampler=PriorSampler())
    method.append_simulations(*simulations(500)).train(settings=nsm.TrainingSettings(max_epochs=2), progress=False)
    with jax.enable_x64(True):
        assert method.density.mixture(jnp.zeros(2)).means.shape == (6, 1)
    again = nsm.load(method.save(tmp_path / "model"))
    theta = PRIOR.sample((5,), seed=1)
    before, after = (m.build_posterior(clean(), seed=1).log_prob(theta) for m in (method, again))
    assert np.isfinite(before).all()
    np.testing.assert_array_equal(before, after)


def test_untrained():
    with pytest.raises(nsm.NotTrainedError):
        nsm.NSMBayes(PRIOR).build_posterior(clean())


def test_nuts_takes_over_where_the_adaptive_sampler_does_not_converge(nle, monkeypatch):
    def refuse(*args, **kwargs):
        raise ConvergenceError("no")

    monkeypatch.setattr(strategy, "sample_independence", refuse)
    by_nuts = nle.build_posterior(clean())
    monkeypatch.undo()
    assert by_nuts.converged
    assert "Sampled by NUTS" in by_nuts.summary()
    adaptive = nle.build_posterior(clean())
    assert "NUTS" not in adaptive.summary()
    assert not np.array_equal(by_nuts.draws, adaptive.draws)
    error = np.hypot(by_nuts.std / np.sqrt(by_nuts.result.ess_bulk), adaptive.std / np.sqrt(adaptive.result.ess_bulk))
    assert (np.abs(by_nuts.mean - adaptive.mean) < 5 * error).all()  # fails for one seed in a million
