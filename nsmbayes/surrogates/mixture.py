"""Gaussian mixtures: log density, score and Laplacian in closed form, in any affine coordinates, smoothed at will."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsmbayes.surrogates.base import Derivatives

_SMALL = 8  # dimensions up to which Cholesky's algorithm is written out


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
        precisions, log_det = _inverse(self.covariances + jnp.square(h) * jnp.eye(d))
        traces = jnp.trace(precisions, axis1=1, axis2=2)
        return FactoredMixture(
            (self.log_weights - 0.5 * log_det - constant)[:, None], self.means, precisions[..., None], traces[:, None]
        )


def _inverse(S: Float[Array, "k d d"]) -> tuple[Float[Array, "k d d"], Float[Array, " k"]]:
    """Inverses and log determinants of covariance matrices, of small ones by Cholesky's algorithm written out.

    A library call a matrix would cost more than the few operations that it makes: these run over all matrices at once.
    """
    d = S.shape[-1]
    if d > _SMALL:
        return jnp.linalg.inv(S), jnp.linalg.slogdet(S)[1]
    L = [[S[:, i, j] for j in range(d)] for i in range(d)]  # entries above the diagonal are not used
    for j in range(d):
        L[j][j] = jnp.sqrt(L[j][j] - sum(L[j][k] ** 2 for k in range(j)))
        for i in range(j + 1, d):
            L[i][j] = (L[i][j] - sum(L[i][k] * L[j][k] for k in range(j))) / L[j][j]
    W = [[jnp.zeros_like(S[:, 0, 0])] * d for _ in range(d)]  # the inverse of L
    for j in range(d):
        W[j][j] = 1 / L[j][j]
        for i in range(j + 1, d):
            W[i][j] = -sum(L[i][k] * W[k][j] for k in range(j, i)) / L[i][i]
    inverse = [[sum(W[i][a] * W[i][b] for i in range(max(a, b), d)) for b in range(d)] for a in range(d)]
    log_det = 2 * sum(jnp.log(L[j][j]) for j in range(d))
    return jnp.stack([jnp.stack(row, axis=-1) for row in inverse], axis=-2), jnp.asarray(log_det)


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
