"""Gaussian mixtures: log density, score and Laplacian in closed form, in any affine coordinates, smoothed at will."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes.surrogates.base import Derivatives


class GaussianMixture(NamedTuple):
    """sum_k exp(log_weight_k) N(mean_k, covariance_k)."""

    log_weights: Float[Array, " k"]
    means: Float[Array, "k d"]
    covariances: Float[Array, "k d d"]

    def pull_back(self, offset: Float[Array, " d"], basis: Float[Array, "d d"]) -> "GaussianMixture":
        """The density of y where x = offset + L y and x has this mixture."""
        inverse = jnp.linalg.inv(basis)
        return GaussianMixture(
            self.log_weights, (self.means - offset) @ inverse.T, inverse @ self.covariances @ inverse.T
        )

    def smooth(self, h: Float[Array, "*points"] | float) -> "FactoredMixture":
        """The density of y + h e, e standard normal: an exact convolution, ready to be evaluated at many points.

        In one dimension h may differ from point to point.
        """
        d = self.means.shape[1]
        constant = 0.5 * d * jnp.log(2 * jnp.pi)
        if d == 1:
            variances = self.covariances[:, 0] + jnp.square(h)
            log_scales = self.log_weights[:, None] - 0.5 * jnp.log(variances) - constant
            precisions = 1 / variances
            return FactoredMixture(log_scales, self.means, precisions[:, None, None, :], precisions)
        factors = jnp.linalg.cholesky(self.covariances + jnp.square(h) * jnp.eye(d))
        precisions = jax.vmap(lambda f: jax.scipy.linalg.cho_solve((f, True), jnp.eye(d, dtype=f.dtype)))(factors)
        log_det = jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        traces = jnp.trace(precisions, axis1=1, axis2=2)
        return FactoredMixture(
            (self.log_weights - log_det - constant)[:, None], self.means, precisions[..., None], traces[:, None]
        )


class FactoredMixture(NamedTuple):
    """A mixture ready to be evaluated at many points: log q(y) = logsumexp_k(log_scale_k - |y - mean_k|^2_P_k / 2).

    The last axis of its parameters is for points: one column serves all of them.
    """

    log_scales: Float[Array, "k n_or_1"]
    means: Float[Array, "k d"]
    precisions: Float[Array, "k d d n_or_1"]
    traces: Float[Array, "k n_or_1"]

    def _components(self, y: Float[Array, "n d"]) -> tuple[Float[Array, "k n"], Float[Array, "k d n"]]:
        # Points last, and products of tiny matrices as sums: the machine then vectorises the loops over points.
        residual = y.T - self.means[:, :, None]
        scores = -(self.precisions * residual[:, None, :, :]).sum(axis=2)
        return self.log_scales + 0.5 * (scores * residual).sum(axis=1), scores

    def log_prob(self, y: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Log density at n points."""
        return jax.nn.logsumexp(self._components(y)[0], axis=0)

    def derivatives(self, y: Float[Array, "n d"]) -> Derivatives:
        """Score and Laplacian of the log density at n points.

        With r_k the responsibilities and s_k the components' scores: score s = sum r_k s_k, Laplacian
        sum r_k (|s_k - s|^2 - tr P_k). Written with the variance of s_k, which far out does not cancel.
        """
        logs, scores = self._components(y)
        r = jax.nn.softmax(logs, axis=0)
        s = (r[:, None] * scores).sum(axis=0)
        # far out the spread of a component that is not responsible for the point overflows: it does not count
        spread = jnp.where(r > 0, ((scores - s) ** 2).sum(axis=1), 0.0)
        return Derivatives(s.T, (r * (spread - self.traces)).sum(axis=0))
