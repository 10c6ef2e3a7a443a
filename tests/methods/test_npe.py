"""NPE and NPE-RS on a Gaussian location, where the posterior is known and the flow can represent it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.location import PRIOR, SIMULATOR, check_posterior, exact_posterior, observed

import nsmbayes as nsm
from nsmbayes._internal.precision import in_double
from nsmbayes.methods.baselines.networks import init_posterior_flow
from nsmbayes.methods.baselines.npe_rs import PenalisedLoss
from nsmbayes.surrogates import Standardiser

pytestmark = pytest.mark.baselines

N = 10
SETTINGS = nsm.TrainingSettings(
    learning_rate=3e-3, weight_decay=0.0, batch_size=100, max_epochs=50, patience=50, schedule="cosine"
)
SETS = nsm.simulate_sets(PRIOR, SIMULATOR, m=1500, n=N, seed=0)


def method(kind=nsm.NPE, **options):
    options = {"summaries": 4, "embedding_hidden": 16, "transforms": 1, "hidden": 16} | options
    return kind(PRIOR, **options).append_simulations(*SETS)


@pytest.fixture(scope="module")
def npe():
    return method().train(0, settings=SETTINGS, progress=False)


def test_npe_finds_the_exact_posterior(npe):
    """On clean data, over twenty data sets: means within a third of the posterior's width, widths within 15 %."""
    errors, widths = [], []
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-2, 2) + np.random.default_rng(100 + seed).standard_normal((N, 1))
        mean, sd = exact_posterior(x)
        posterior = npe.build_posterior(x, seed=seed)
        errors.append((posterior.mean[0] - mean) / sd)
        widths.append(posterior.std[0] / sd)
    assert np.sqrt(np.mean(np.square(errors))) < 1 / 3
    assert np.mean(widths) == pytest.approx(1, abs=0.15)


def test_npe_is_not_robust(npe):
    """Two of ten readings at 40: the posterior leaves the truth far behind, by its own measure."""
    posterior = npe.build_posterior(observed(N, 2))
    assert abs(posterior.mean[0] - 1) > 5 * posterior.std[0]


@jax.enable_x64(True)
def discrepancy(method, x):
    """MMD^2 between the summaries of the simulated data sets and those of one more."""
    of = jax.jit(jax.vmap(lambda each: method.flow.embedding(method.flow.scale_x(each))))
    simulated, own = np.asarray(of(jnp.asarray(SETS[1][:500]))), np.asarray(of(jnp.asarray(x[None])))
    return nsm.metrics.mmd2(own.repeat(2, axis=0), simulated)


def test_npe_rs_draws_the_observed_summaries_to_the_simulated_ones(npe):
    x = observed(N, 2)
    x[:2] = 15.0
    robust = method(nsm.NPERS, strength=5.0).train(0, settings=SETTINGS, progress=False)
    assert robust.amortised == "no"
    with pytest.raises(nsm.NotTrainedError):  # nothing is trained before the observations are there
        _ = robust.flow
    posterior = robust.build_posterior(x)
    check_posterior(posterior, N)
    assert discrepancy(robust, x) < 0.8 * discrepancy(npe, x)


def test_the_penalised_loss(x64):
    """Against NumPy; and it does not change with the scale of the summaries."""
    units = Standardiser(jnp.zeros(1), jnp.ones(1), asinh=False)
    sizes = {"summaries": 4, "embedding_hidden": 8, "transforms": 1, "hidden": 8}
    flow, rng = in_double(init_posterior_flow(jax.random.key(0), units, units, **sizes)), np.random.default_rng(0)
    theta, x, seen = (jnp.asarray(rng.standard_normal(shape)) for shape in ((7, 1), (7, N, 1), (N, 1)))
    embed, log_prob = eqx.filter_jit(flow.embedding), eqx.filter_jit(flow.network_log_prob)
    s, o = np.stack([embed(each) for each in x]), np.asarray(embed(seen))
    fit = -np.mean([float(log_prob(t, each)) for t, each in zip(theta, jnp.asarray(s), strict=True)])

    def penalty(s, o):
        i, j = np.triu_indices(7, 1)
        l2 = np.median(((s[i] - s[j]) ** 2).sum(-1)) / 2
        return nsm.metrics.mmd2(s, o[None].repeat(2, axis=0), lengthscale=np.sqrt(l2))

    for strength in (1.0, 5.0):
        loss = eqx.filter_jit(PenalisedLoss(seen, jnp.asarray(strength)))(flow, theta, x, jax.random.key(0))
        assert float(loss) == pytest.approx(fit + strength * penalty(s, o), rel=1e-10)
    assert penalty(3 * s, 3 * o) == pytest.approx(penalty(s, o), rel=1e-10)


@pytest.mark.parametrize("kind", [nsm.NPE, nsm.NPERS])
def test_bad_input(kind):
    with pytest.raises(nsm.NotTrainedError):
        method(kind).build_posterior(np.zeros((N, 1)))
    with pytest.raises(nsm.InputError, match=r"`x` must have shape \(m, 10, 1\)"):
        method(kind).append_simulations(SETS[0], SETS[1][:, :5])
    with pytest.raises(nsm.InputError, match="simulate_sets"):
        kind(PRIOR).append_simulations(SETS[0], SETS[1][:, 0])
    with pytest.raises(nsm.InputError, match="same number of rows"):
        kind(PRIOR).append_simulations(SETS[0][:4], SETS[1])
    with pytest.raises(nsm.InputError, match="no simulations"):
        kind(PRIOR).train()
