"""Losses that are not finite, or of absurd size, and parameters of very different scales."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nsmbayes import GaussianPrior
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses import Loss
from nsmbayes.priors import unconstrain_rows, unconstrained
from nsmbayes.samplers import Target, as_sampler
from nsmbayes.samplers.chains import Draws, require_movement

KINDS = ("adaptive", "nuts", "slice")


class Bowl(Loss):
    """sum of (theta - centre)^2 / (2 spread^2): with the prior, a Gaussian posterior."""

    centre: np.ndarray
    spread: np.ndarray

    def each(self, theta):
        """One observation."""
        return 0.5 * (((theta - self.centre) / self.spread) ** 2).sum()[None]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_is_nowhere_finite_is_an_error_with_a_reason(x64, kind):
    loss = Bowl(jnp.zeros(2), jnp.full(2, jnp.nan))
    target = Target(unconstrained(GaussianPrior(np.zeros(2), np.ones(2))), loss, jnp.asarray(1.0))
    sampler = as_sampler(kind, chains=4, warmup=50, draws=50)
    with pytest.raises(ConvergenceError, match=r"NaN or infinite at all [\d,]+ draws of the prior"):
        sampler.sample(target, seed=0)


def test_one_chain_that_moved_is_enough():
    positions = np.zeros((2, 10, 1))
    result = Draws(positions, *(np.ones(2) for _ in range(5)))
    with pytest.raises(ConvergenceError, match="No chain has moved"):
        require_movement(result)
    positions[1, 3] = 1e-9
    assert require_movement(result) is result


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_very_different_scales(x64, kind):
    scales = np.array([1e-5, 1e5])
    target = Target(unconstrained(GaussianPrior(np.zeros(2), scales**2)), Bowl(scales, scales), jnp.asarray(1.0))
    result = as_sampler(kind, chains=4, warmup=200, draws=500).sample(target, seed=0)
    theta = np.asarray(target.prior.units) * result.flat / scales
    error = np.sqrt(0.5 / result.ess_bulk)
    assert (np.abs(theta.mean(axis=0) - 0.5) < 5 * error).all()
    assert (np.abs(theta.std(axis=0) - np.sqrt(0.5)) < 5 * error).all()


@pytest.mark.parametrize("family", [dist.Normal, dist.Cauchy, dist.Laplace])
def test_priors_of_any_scale_are_sampled_in_units_of_a_usual_size(family):
    scales = np.array([1e-9, 1.0, 1e9])
    prior = unconstrained(family(jnp.zeros(3), jnp.asarray(scales)).to_event(1))
    np.testing.assert_array_equal(prior.units, [2.0**-30, 1.0, 2.0**30])
    assert (np.abs(np.log10(np.abs(unconstrain_rows(prior, scales[None])))) < 2).all()
