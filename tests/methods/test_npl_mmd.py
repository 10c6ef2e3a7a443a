import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.location import LENGTHSCALE, PRIOR, SIMULATOR, check_posterior, mmd_minimiser, observed

import nsmbayes as nsm
from nsmbayes.methods.baselines.npl_mmd import Descent, Discrepancy, minimisers

pytestmark = pytest.mark.baselines


def method(**options):
    return nsm.NPLMMD(PRIOR, SIMULATOR, lengthscale=LENGTHSCALE, **({"draws": 100} | options))


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(1).dirichlet(np.ones(30), 60)


def descents(weights):
    """What the method makes of given Dirichlet weights, with many simulations and steps."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), len(weights))
        discrepancy = Discrepancy(SIMULATOR.one, method().support, jnp.asarray(observed()), jnp.asarray(LENGTHSCALE))
        descent = Descent(simulations=40, steps=200, rate=0.1, decay=True)
        u, _ = minimisers(discrepancy, jnp.asarray(weights), jnp.zeros(1), keys, descent)
    return np.asarray(u)[:, 0]


def test_each_draw_is_the_minimiser_under_its_weights(weights):
    """Outliers at 40 included, which the exact minimiser overlooks. The descents end within their own noise of it."""
    exact = np.array([mmd_minimiser(observed(), w) for w in weights])
    found = descents(weights)
    error = found - exact
    assert abs(error.mean()) < 4.5 * error.std() / np.sqrt(len(error))  # by chance with probability 7e-6
    assert np.corrcoef(found, exact)[0, 1] > 0.9
    # the planted bug: weights that are not used
    assert np.corrcoef(descents(np.full_like(weights, 1 / 30)), exact)[0, 1] < 0.5


def test_draws_and_budget():
    npl = method(steps=4, simulations=5, budget=2000)
    posterior = npl.build_posterior(observed(), seed=3)
    check_posterior(posterior, 30)
    assert npl.simulations_used == npl.planned_simulations(30) == 2000
    assert posterior.draws.shape == (1, 100, 1)
    assert posterior.converged
    with pytest.raises(nsm.BudgetError):
        npl.build_posterior(observed())


def test_descents_start_where_they_are_told():
    near = method(steps=1, rate=1e-6, start=[2.5]).build_posterior(observed())
    assert np.allclose(near.draws, 2.5, atol=1e-5)


def test_a_simulator_without_derivative_is_refused():
    def rounds(key, theta):
        return jnp.round(theta + jax.random.normal(key, (1,)))

    with pytest.raises(nsm.InputError, match="derivative with respect to theta is zero"):
        nsm.NPLMMD(PRIOR, nsm.JaxSimulator(rounds), steps=2).build_posterior(observed())
    with pytest.raises(nsm.InputError, match="must be differentiable for NPL-MMD"):
        nsm.NPLMMD(PRIOR, nsm.NumpySimulator(lambda rng, theta: theta)).build_posterior(observed())
