"""A standard normal posterior whose loss is known up to noise: exp(-noise) has the same mean everywhere."""

import jax
import numpy as np
import pytest

from nsmbayes.samplers.pseudo_marginal import sample_pseudo_marginal

pytestmark = pytest.mark.baselines

CHAINS, K = 64, 4


def noisy_loss(noise):
    draw = jax.jit(jax.vmap(jax.vmap(jax.random.normal)))

    def loss(position, keys):
        assert keys.shape == (CHAINS, K)
        return 0.5 * (position**2).sum(axis=1) + noise * np.asarray(draw(keys)).sum(axis=1) / np.sqrt(K)

    return loss


def flat(position):
    return np.zeros(len(position))


def run(loss, groups=1, draws=400, warmup=100):
    return sample_pseudo_marginal(
        flat, loss, np.zeros((CHAINS, 1)), np.eye(1),
        simulations=K, groups=groups, warmup=warmup, draws=draws, key=jax.random.key(0),
    )  # fmt: skip


def z_of_variance(draws):
    var = (draws[..., 0] ** 2).mean(axis=1)
    return (var.mean() - 1) / (var.std() / np.sqrt(CHAINS))


@pytest.mark.parametrize(("noise", "groups"), [(0.0, 1), (1.0, 1), (1.0, 4)])
def test_the_mean_of_the_estimate_is_what_counts(noise, groups):
    # |z| > 4.5 has probability 7e-6
    draws, acceptance = run(noisy_loss(noise), groups)
    assert draws.shape == (CHAINS, 400, 1)
    assert abs(z_of_variance(draws)) < 4.5
    assert (acceptance > 0.02).all()


def test_a_noise_that_depends_on_theta_is_seen():
    """The planted bug: noise whose exponential has another mean elsewhere moves the posterior."""
    plain = noisy_loss(1.0)

    def loss(position, keys):
        return plain(position, keys) + 0.3 * position[:, 0] ** 2

    assert z_of_variance(run(loss)[0]) < -4.5


def test_groups_correlate_neighbouring_estimates():
    """With fewer simulations redrawn more proposals are accepted."""
    assert run(noisy_loss(2.0), groups=4)[1].mean() > run(noisy_loss(2.0), groups=1)[1].mean()


def test_the_loss_is_estimated_once_a_step():
    calls = []
    loss = noisy_loss(0.0)

    def counted(position, keys):
        calls.append(len(position))
        return loss(position, keys)

    run(counted, draws=7, warmup=5)
    assert len(calls) == 12
    calls.clear()
    draws, _ = run(counted, draws=7, warmup=0)
    assert len(calls) == 7
    assert draws.shape[1] == 7
