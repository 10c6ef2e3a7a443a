"""GBI-SR against the exact MMD-Bayes posterior of a Gaussian location, by quadrature."""

import numpy as np
import pytest
from support.location import LENGTHSCALE, PRIOR, SIMULATOR, check_posterior, mmd_posterior, observed

import nsmbayes as nsm

pytestmark = pytest.mark.baselines

WITHOUT_GRADIENT = nsm.JaxSimulator(SIMULATOR.one, differentiable=False)
BETA = 0.3  # of the posterior that is sampled: broad enough for the estimates' noise to be small


def method(simulator=SIMULATOR, **options):
    return nsm.GBISR(PRIOR, simulator, lengthscale=LENGTHSCALE, **options)


@pytest.mark.parametrize("simulator", [SIMULATOR, WITHOUT_GRADIENT], ids=["gradients", "pseudo-marginal"])
def test_the_exact_posterior_is_sampled(simulator):
    """Within a fifth of its standard deviation, which noise and step size may cost; outliers at 40 included."""
    x = observed()
    mean, sd = mmd_posterior(x, BETA)
    posterior = method(simulator, simulations=60, warmup=300, draws=3000).build_posterior(x, beta=BETA, seed=1)
    assert posterior.beta == BETA
    assert posterior.mean[0] == pytest.approx(mean, abs=0.2 * sd)
    assert posterior.std[0] == pytest.approx(sd, rel=0.2)
    # planted bugs: the posterior at half the rate is too wide by that measure, and the likelihood's is elsewhere
    assert mmd_posterior(x, BETA / 2)[1] > 1.2 * sd
    assert abs(x.mean() - mean) > sd


SMALL = {
    "simulations": 5, "bootstrap_simulations": 4, "bootstrap_draws": 30, "minimiser_steps": 20, "warmup": 20,
    "draws": 30, "calibration": nsm.calibration.GridCalibration(betas=(0.1, 1.0), bootstraps=5),
}  # fmt: skip
PLANNED = 20 * 4 + 2 * 5 * 30 * 4 + 50 * 5


def test_every_call_is_counted():
    """By a simulator that counts its own calls."""
    calls = []

    def one(rng, theta):
        calls.append(theta.shape)
        return theta + rng.standard_normal(1)

    gbi = method(nsm.NumpySimulator(one), budget=PLANNED, **SMALL)
    posterior = gbi.build_posterior(observed(10, 1), seed=0)
    assert len(calls) == gbi.simulations_used == gbi.planned_simulations(10) == PLANNED
    assert set(calls) == {(1,)}
    assert posterior.calibration.beta == posterior.beta in (0.1, 1.0)
    assert "Algorithm 3" in posterior.summary()
    with pytest.raises(nsm.BudgetError):
        gbi.build_posterior(observed(10, 1))
    assert len(calls) == PLANNED


def test_calibration_with_gradients():
    gbi = method(budget=PLANNED, **SMALL)
    posterior = gbi.build_posterior(observed(), seed=0)
    check_posterior(posterior, 30)
    assert gbi.simulations_used == PLANNED
    assert len(posterior.calibration.coverages) == 2
    assert posterior.result.positions.shape == (1, 30, 1)


def test_a_given_learning_rate_costs_no_calibration():
    gbi = method(**SMALL)
    gbi.build_posterior(observed(), beta=1.0)
    assert gbi.simulations_used == gbi.planned_simulations(30, calibrate=False) == 20 * 4 + 50 * 5


def test_groups_are_for_simulators_without_gradient():
    with pytest.raises(nsm.InputError, match="`groups` is for simulators without derivatives"):
        method(groups=3)
    posterior = method(WITHOUT_GRADIENT, groups=3, **SMALL).build_posterior(observed(), beta=1.0)
    assert np.isfinite(posterior.mean).all()


def test_only_a_grid_has_a_known_cost():
    with pytest.raises(nsm.InputError, match="`calibration` must be a GridCalibration"):
        method(calibration=nsm.calibration.PathCalibration())


def test_it_takes_no_simulations():
    assert not hasattr(method(), "append_simulations")


def test_tied_observations_have_no_lengthscale():
    with pytest.raises(nsm.InputError, match="`x` is constant, or so tied"):
        nsm.GBISR(PRIOR, SIMULATOR).build_posterior(np.ones((10, 1)))
