"""Mixture densities that are known in closed form: nothing has to be trained."""

import jax
import jax.numpy as jnp
import numpy as np

import nsmbayes as nsm
from nsmbayes.surrogates import MixtureDensity, Standardiser
from nsmbayes.surrogates.mixture import GaussianMixture


class Skewed(MixtureDensity):
    """In each of d columns, x_j ~ 0.7 N(theta_j, s^2) + 0.3 N(theta_j + 2 s, s^2 / 4), s = exp(theta_last)."""

    scale_x: Standardiser
    scale_theta: Standardiser

    def mixture(self, t):
        s, mean = jnp.exp(t[-1]), t[:-1]
        d = len(mean)
        return GaussianMixture(
            jnp.log(jnp.array([0.7, 0.3])),
            jnp.stack([mean, mean + 2 * s]),
            jnp.stack([s**2 * jnp.eye(d), s**2 / 4 * jnp.eye(d)]),
        )


def skewed(d):
    """The density for d columns, in the user's units."""
    with jax.enable_x64(True):
        scales = [Standardiser(jnp.zeros(k), jnp.ones(k), asinh=False) for k in (d, d + 1)]
        return Skewed(*scales)


def skewed_prior(d):
    return nsm.GaussianPrior(np.zeros(d + 1), np.diag([4.0] * d + [0.5]))


def skewed_data(d, n, outliers=0, seed=0):
    """Observations at theta = (1, ..., 1, 0), of which the first ones are moved far away."""
    rng = np.random.default_rng(seed)
    group = rng.random(n) < 0.3
    x = 1 + np.where(group[:, None], 2 + 0.5 * rng.standard_normal((n, d)), rng.standard_normal((n, d)))
    x[:outliers] += 40
    return x


def with_density(method, d):
    """A method that uses the density, and some simulations to tell where it can be trusted."""
    x = np.linspace(-60, 60, 200)[:, None] * np.ones(d)
    method.append_simulations(skewed_prior(d).sample(200, seed=0), x)
    return method.adopt(skewed(d))
