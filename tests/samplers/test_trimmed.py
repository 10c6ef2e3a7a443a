"""The robust first guess: x ~ N(theta, I) with up to 40 % of the observations in one group far away."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from numpyro.distributions import Uniform

from nsmbayes.losses import Loss
from nsmbayes.priors import GaussianPrior, unconstrained
from nsmbayes.samplers import trimmed, trimmed_fit

TRUE = np.array([1.0, -2.0, 0.5])
PRIOR = unconstrained(GaussianPrior(np.zeros(3), 9 * np.eye(3)))


class Location(Loss):
    """-log N(x_i; theta, I), up to a constant."""

    x: Float[Array, "n d"]

    def each(self, theta):
        """Half the squared distances."""
        return 0.5 * ((self.x - theta) ** 2).sum(axis=1)


def observed(outliers, at=8.0, n=50):
    x = TRUE + np.random.default_rng(0).standard_normal((n, 3))
    x[:outliers] = TRUE + at + 0.1 * np.random.default_rng(1).standard_normal((outliers, 3))
    return x


def loss_of(x):
    return Location(np.asarray(x, np.float64))


@pytest.mark.parametrize(("outliers", "at"), [(0, 8.0), (20, 8.0), (20, 1e6)])
def test_a_minority_in_one_group_does_not_move_it(outliers, at):
    found = trimmed_fit(PRIOR, loss_of(observed(outliers, at)), seed=0)
    assert found.dtype == np.float64
    assert np.abs(found - TRUE).max() < 0.8


def test_the_sum_over_all_observations_would_be_moved(monkeypatch):
    """What the tests above would miss, if nothing were trimmed."""
    monkeypatch.setattr(trimmed, "_better_half", lambda u, prior, loss: loss(prior.constrain(u)))
    found = trimmed_fit(PRIOR, loss_of(observed(20)), seed=0)
    assert (found - TRUE > 2).all()


def test_it_minimises_the_losses_of_the_better_half():
    """Nothing nearby is better, to within the roughness of the search."""
    x = observed(20)

    def better_half(theta):
        return np.sort(((x - theta) ** 2).sum(axis=1) / 2)[:26].sum()

    found = trimmed_fit(PRIOR, loss_of(x), seed=0)
    around = found + 0.3 * np.random.default_rng(2).standard_normal((500, 3))
    assert better_half(found) < min(map(better_half, around)) + 0.5
    assert better_half(found) < better_half(TRUE)


def test_same_seed_same_answer():
    loss = loss_of(observed(20))
    first = trimmed_fit(PRIOR, loss, seed=3)
    np.testing.assert_array_equal(first, trimmed_fit(PRIOR, loss, seed=3))
    other = trimmed_fit(PRIOR, loss, seed=4)
    assert (first != other).any()
    np.testing.assert_allclose(first, other, atol=0.2)


def test_it_stays_in_the_support_and_losses_may_be_no_numbers():
    class Broken(Location):
        """Not a number for some observations or above 1.2 in the first parameter."""

        def each(self, theta):
            each = super().each(theta)
            each = jnp.where(jnp.arange(len(each)) < 10, jnp.nan, each)
            return jnp.where(theta[0] > 1.2, jnp.nan, each)

    prior = unconstrained(Uniform(-jnp.ones(3) * 1.5, jnp.ones(3) * 1.5).to_event(1))
    found = trimmed_fit(prior, Broken(observed(0)), seed=0)
    assert (np.abs(found) <= 1.5).all()
    assert found[0] <= 1.2
    assert found[1] < -1.3
