"""A mixture of two Gaussians with unknown location, in units that are not those of x, and draws of it."""

import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes.surrogates import MixtureDensity, Standardiser
from nsmbayes.surrogates.mixture import GaussianMixture


class Location(MixtureDensity):
    """0.7 N(theta, C) + 0.3 N(theta + 1, 2 C), in units that are not those of x."""

    covariance: jax.Array
    scale_x: Standardiser
    scale_theta: Standardiser

    def mixture(self, t):
        theta = self.scale_theta.centre + self.scale_theta.scale * t
        means = jnp.stack([theta, theta + 1])
        unit = self.scale_x.scale
        covariances = jnp.stack([self.covariance, 2 * self.covariance]) / unit[:, None] / unit
        return GaussianMixture(jnp.log(jnp.array([0.7, 0.3])), (means - self.scale_x.centre) / unit, covariances)


def location(d, *, x64=True):
    rng = np.random.default_rng(d)
    A = rng.standard_normal((d, d))
    with jax.enable_x64(x64):
        unit = Standardiser(jnp.asarray(rng.standard_normal(d)), jnp.asarray(rng.uniform(0.5, 2, d)), False)
        return Location(jnp.asarray(np.eye(d) + 0.3 * A @ A.T / d), unit, unit)


def draw(density, theta, n, rng):
    C = np.asarray(density.covariance)
    second = rng.random((n, 1)) < 0.3
    z = rng.standard_normal((n, len(C))) @ np.linalg.cholesky(C).T
    return theta + np.where(second, 1 + np.sqrt(2) * z, z)
