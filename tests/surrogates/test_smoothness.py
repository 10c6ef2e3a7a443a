"""Densities whose score jumps are told from those that are merely sharp."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.surrogates import Density, require_smooth

THETA = np.random.default_rng(0).standard_normal((200, 1))
X = THETA + np.random.default_rng(1).standard_normal((200, 2))


class Energy(Density):
    """log q(x | theta) = -|x - theta|^2 / 2 - energy(x), up to a constant."""

    energy: object

    def log_prob(self, theta, x):
        return -0.5 * ((x - theta) ** 2).sum() - self.energy(x)

    def network_log_prob(self, t, z):
        return self.log_prob(t, z)

    def derivatives(self, theta, x, basis):
        raise NotImplementedError


def spline(x):
    """A piecewise parabola: its slope, which is the score, is continuous but log |slope| has a kink."""
    slope = 1 + jnp.interp(x[0], jnp.array([-1.0, 0.0, 1.0]), jnp.array([0.0, 2.0, 0.0]))
    return -jnp.log(slope)


SMOOTH = {
    "tanh": lambda x: jnp.tanh(3 * x).sum(),
    "narrow": lambda x: -jnp.logaddexp(0.0, 3 - 0.5 * (x[0] / 0.02) ** 2),
    "softplus": lambda x: jax.nn.softplus(5 * x[0] - x[1]),
}
KINKED = {
    "relu": lambda x: jax.nn.relu(x[0] - 0.3 * x[1]),
    "abs": lambda x: jnp.abs(x).sum(),
    "spline": spline,
    "nan": lambda x: jnp.log(x[0]),
}


@pytest.mark.parametrize("energy", SMOOTH.values(), ids=SMOOTH)
def test_smooth_densities_are_accepted(energy):
    require_smooth(Energy(energy), THETA, X)


@pytest.mark.parametrize("energy", KINKED.values(), ids=KINKED)
def test_kinked_densities_are_refused(energy):
    with pytest.raises(nsm.InputError, match="not twice differentiable"):
        require_smooth(Energy(energy), THETA, X)


def test_a_method_refuses_what_it_cannot_use():
    prior = nsm.GaussianPrior([0.0], [1.0])
    with pytest.raises(nsm.InputError, match="append_simulations"):
        nsm.NSMBayes(prior, noise_levels=(0,)).adopt(Energy(SMOOTH["tanh"]))
    with pytest.raises(nsm.InputError, match="cannot be smoothed"):
        nsm.NSMBayes(prior).append_simulations(THETA, X).adopt(Energy(SMOOTH["tanh"]))
    with pytest.raises(nsm.InputError, match="not twice differentiable"):
        nsm.NSMBayes(prior, noise_levels=(0,)).append_simulations(THETA, X).adopt(Energy(KINKED["relu"]))
    with pytest.raises(nsm.InputError, match="`other`"):
        nsm.NLE(prior).adopt("a density")
    assert nsm.NLE(prior).append_simulations(THETA, X).adopt(Energy(KINKED["relu"])).d_x == 2
