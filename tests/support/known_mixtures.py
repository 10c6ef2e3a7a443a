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


LINEAR_W = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]])
LINEAR_S = np.array([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 0.5]])
LINEAR_PRIOR = nsm.GaussianPrior(np.zeros(2), 4 * np.eye(2))


class Linear(MixtureDensity):
    """x ~ N(W theta, S): with a Gaussian prior the posterior is known, whichever cells are missing."""

    scale_x: Standardiser
    scale_theta: Standardiser

    def mixture(self, t):
        return GaussianMixture(jnp.zeros(1), (jnp.asarray(LINEAR_W) @ t)[None], jnp.asarray(LINEAR_S)[None])


def linear(method):
    """A method that uses the density, and some simulations to tell where it can be trusted."""
    with jax.enable_x64(True):
        density = Linear(*(Standardiser(jnp.zeros(k), jnp.ones(k), asinh=False) for k in (3, 2)))
    x = np.linspace(-90, 90, 200)[:, None] * np.ones(3)
    return method.append_simulations(LINEAR_PRIOR.sample(200, seed=0), x).adopt(density)


def linear_data(n, *, fraction, outliers=0, seed=0):
    """Observations at theta = (1, -0.5), the first ones moved far away, a fraction of the cells NaN at random."""
    rng = np.random.default_rng(seed)
    x = LINEAR_W @ [1.0, -0.5] + rng.multivariate_normal(np.zeros(3), LINEAR_S, n)
    x[:outliers] += 30
    gone = rng.random(x.shape) < fraction
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, x)


def linear_posterior(x):
    """Mean and covariance of the exact posterior, from the observed cells of each row."""
    precision, shift = LINEAR_PRIOR.precision.copy(), np.zeros(2)
    for row in x:
        seen = np.flatnonzero(~np.isnan(row))
        pull = LINEAR_W[seen].T @ np.linalg.inv(LINEAR_S[np.ix_(seen, seen)])
        precision += pull @ LINEAR_W[seen]
        shift += pull @ row[seen]
    return np.linalg.solve(precision, shift), np.linalg.inv(precision)
