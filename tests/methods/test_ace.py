"""ACE's network against the expected MMD^2 of a Gaussian location, which is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.location import LENGTHSCALE, PRIOR, SIMULATOR, attraction, check_posterior, observed

import nsmbayes as nsm

pytestmark = pytest.mark.baselines

M, N = 400, 20
SETTINGS = nsm.TrainingSettings(
    learning_rate=3e-3, weight_decay=0.0, batch_size=64, max_epochs=200, patience=200, schedule="cosine"
)
OPTIONS = {"hidden": 24, "blocks": 1, "summaries": 6, "augmented": 20, "lengthscale": LENGTHSCALE, "scaling": "robust"}


@pytest.fixture(scope="module")
def trained():
    method = nsm.ACE(
        PRIOR, **OPTIONS, budget=M * N, chains=4, warmup=50, draws=100, bootstrap_draws=40, minimiser_steps=50,
        calibration=nsm.calibration.GridCalibration(betas=(1.0, 30.0), bootstraps=4),
    )  # fmt: skip
    method.append_simulations(*nsm.simulate_sets(PRIOR, SIMULATOR, m=M, n=N, seed=0))
    return method.train(0, observed=observed(N, 2), settings=SETTINGS, progress=False)


def expected_mmd2(theta, x):
    """E MMD^2 between n draws of N(theta, 1) and x, all pairs of both samples included."""
    n, l2 = len(x), LENGTHSCALE**2
    among_draws = 1 / n + (1 - 1 / n) * np.sqrt(l2 / (l2 + 2))
    among_x = np.exp(-((x - x.T) ** 2) / (2 * l2)).mean()
    return among_draws - 2 * attraction(theta, x[:, 0]).mean() + among_x


@jax.enable_x64(True)
def costs(method, theta, x):
    """What the network predicts at many thetas."""
    summary = method.network.summary(jnp.asarray(x))
    return np.asarray(jax.vmap(lambda t: method.network.cost(t, summary))(jnp.asarray(theta)[:, None]))


def test_the_network_knows_the_expected_distance(trained):
    """At 40 places of the bulk of the prior: nine tenths of the variance of the true values are explained."""
    x, theta = observed(N, 2), np.linspace(-3, 3, 40)
    truth = np.array([expected_mmd2(t, x) for t in theta])
    assert ((costs(trained, theta, x) - truth) ** 2).mean() < 0.1 * truth.var()
    # the planted bug: the network of other data
    assert ((costs(trained, theta, x - 2) - truth) ** 2).mean() > truth.var()


def test_the_posterior_is_that_of_the_network(trained):
    """By a grid, within 4.5 standard errors of the effective draws: by chance with probability below 2e-5."""
    x, beta = observed(N, 2), 30.0
    posterior = trained.build_posterior(x, beta=beta, seed=2)
    grid = np.linspace(-8, 8, 801)
    log_p = -beta * costs(trained, grid, x) - grid**2 / 8
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    sd = np.sqrt(p @ (grid - mean) ** 2)
    assert abs(posterior.mean[0] - mean) < 4.5 * sd / np.sqrt(posterior.result.ess_bulk.min())
    assert posterior.std[0] == pytest.approx(sd, rel=4.5 / np.sqrt(posterior.result.ess_bulk.min()))


def test_calibration_costs_no_simulations(trained):
    posterior = trained.build_posterior(observed(N, 2), seed=0)
    check_posterior(posterior, N)
    assert posterior.beta == posterior.calibration.beta in (1.0, 30.0)
    assert trained.simulations_used == M * N


def test_bad_input(trained):
    with pytest.raises(nsm.InputError, match="`observed` must have shape"):
        trained.train(observed=np.zeros(3))
    with pytest.raises(nsm.InputError, match="trained on data sets of 20"):
        trained.build_posterior(np.zeros((19, 1)))
    for calibration in (None, nsm.calibration.RootCalibration()):
        with pytest.raises(nsm.InputError, match=r"`calibration` must be e\.g\. nsmbayes.calibration.GridCalibration"):
            nsm.ACE(PRIOR, calibration=calibration)
    with pytest.raises(TypeError, match="target_per_step"):
        nsm.ACE(PRIOR, target_per_step=3)
    with pytest.raises(nsm.NotTrainedError):
        nsm.ACE(PRIOR).build_posterior(np.zeros((20, 1)))
