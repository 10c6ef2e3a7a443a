import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsmbayes.samplers import langevin
from nsmbayes.samplers.langevin import adaptive_langevin

pytestmark = pytest.mark.baselines

CENTRE, SCALE = np.array([1.0, -2.0]), np.array([1.0, 0.5])
CHAINS, STEPS = 64, 3000


def chain(noise, key):
    """One chain on N(centre, scale^2) whose gradients have the standard deviation `noise`."""

    def gradient(x, key):
        return (x - CENTRE) / SCALE**2 + noise * jax.random.normal(key, x.shape)

    return adaptive_langevin(gradient, jnp.asarray(CENTRE), key, steps=STEPS, step_size=0.1)


def run(*noises):
    keys = jax.random.split(jax.random.key(0), CHAINS)
    positions = jax.jit(jax.vmap(jax.vmap(chain, (None, 0)), (0, None)))(jnp.asarray(noises), keys)
    return np.asarray(positions)[:, :, STEPS // 3 :]


def moments_are_right(draws):
    """Means and variances within 4.5 standard errors from the spread of the chains, and 5 % for the step size.

    Four numbers: seen by chance with probability below 3e-5.
    """
    mean, var = draws.mean(axis=1), ((draws - CENTRE) ** 2).mean(axis=1)
    error = 4.5 / np.sqrt(CHAINS)
    means = np.abs(mean.mean(axis=0) - CENTRE) < error * mean.std(axis=0)
    variances = np.abs(var.mean(axis=0) / SCALE**2 - 1) < 0.05 + error * var.std(axis=0) / SCALE**2
    return bool(means.all() and variances.all())


def test_the_target_is_sampled_whatever_the_noise(x64):
    for draws in run(0.0, 4.0):
        assert moments_are_right(draws)


def test_without_a_thermostat_noise_heats_the_chain(x64, monkeypatch):
    """The planted bug: a friction that does not adapt."""
    monkeypatch.setattr(langevin, "_THERMOSTAT", 0.0)
    assert not moments_are_right(run(4.0)[0])
