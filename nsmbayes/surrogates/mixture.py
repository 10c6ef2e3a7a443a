"""Gaussian mixtures: log density, score and Laplacian in closed form, in any affine coordinates, smoothed or not."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.linalg import inverse_and_log_det
from nsmbayes.surrogates.base import Derivatives, Moments

FEW_COLUMNS = 5
"""Up to this dimension, factorisations are unrolled; above it, loops are as fast and compile faster."""


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

    def moments(self) -> Moments:
        """Mean and covariance of the mixture."""
        weights = jnp.exp(self.log_weights)
        mean = weights @ self.means
        offsets = self.means - mean
        return Moments(mean, jnp.tensordot(weights, self.covariances + offsets[:, :, None] * offsets[:, None], 1))

    def smooth(self, h: Float[Array, ""] | float) -> "FactoredMixture":
        """The density of y + h e, e standard normal: an exact convolution, prepared for evaluation at many points."""
        d = self.means.shape[1]
        constant = 0.5 * d * jnp.log(2 * jnp.pi)
        precisions, log_det = _inverse(self.covariances + jnp.square(h) * jnp.eye(d))
        traces = jnp.trace(precisions, axis1=1, axis2=2)
        return FactoredMixture(self.log_weights - 0.5 * log_det - constant, self.means, precisions, traces)

    def line_scores(self, h: Float[Array, " levels"], y: Float[Array, "levels n"]) -> Float[Array, "levels n"]:
        """In one dimension, the score of the density of y + h e, at n points for each of several h."""
        P, μ, r = self._on_lines(h, y)
        total, first, constant = jnp.moveaxis(jnp.stack([jnp.ones_like(P), -P, P * μ], 1) @ r, 1, 0)
        return (first * y + constant) / total

    def line_derivatives(
        self, h: Float[Array, " levels"], y: Float[Array, "levels n"], *, products: bool = True
    ) -> tuple[Float[Array, "levels n"], Float[Array, "levels n"]]:
        """In one dimension, score and Laplacian of the log density of y + h e, at n points for each of several h.

        With r_k the responsibilities of components and s_k = -P_k (y - μ_k) their scores: sum r_k s_k, and
        sum r_k (s_k^2 - P_k) minus the square of the score. As polynomials in y, both are matrix products, which is
        twice as fast as `smooth(h).derivatives`; it loses digits for points more than 1e5 standard deviations away. On
        a GPU, products of such small matrices are slow: `products=False` is faster.
        """
        if not products:
            return self._line_sums(h, y)
        P, μ, r = self._on_lines(h, y)
        rows = [jnp.ones_like(P), -P, P * μ, P**2, -2 * P**2 * μ, P**2 * μ**2 - P]
        total, s1, s0, q2, q1, q0 = jnp.moveaxis(jnp.stack(rows, 1) @ r, 1, 0)
        score = (s1 * y + s0) / total
        return score, (q2 * y**2 + q1 * y + q0) / total - score**2

    def _line_sums(self, h: Float[Array, " levels"], y: Float[Array, "levels n"]) -> tuple[Array, Array]:
        """`line_derivatives` in single precision, with relative errors of 1e-7; sums over components are written out.

        So it is a single GPU kernel, and only results go through the GPU's memory.
        """
        variances = self.covariances[:, 0, 0] + jnp.square(h)[:, None]
        heights = self.log_weights - 0.5 * jnp.log(variances)
        heights, P, μ, points = (a.astype(jnp.float32) for a in (heights, 1 / variances, self.means[:, 0], y))
        components = [(heights[:, k, None], P[:, k, None], points - μ[k]) for k in range(len(μ))]
        logs = [height - 0.5 * precision * z**2 for height, precision, z in components]
        largest = functools.reduce(jnp.maximum, logs)
        total = first = second = jnp.zeros_like(points)
        for log, (_, precision, z) in zip(logs, components, strict=True):
            r, s = jnp.exp(log - largest), -precision * z
            total, first, second = total + r, first + r * s, second + r * (s**2 - precision)
        score, laplacian = first / total, second / total - (first / total) ** 2
        return score.astype(y.dtype), laplacian.astype(y.dtype)

    def _on_lines(self, h: Float[Array, " levels"], y: Float[Array, "levels n"]) -> tuple[Array, Array, Array]:
        """Precisions (levels, k), means (k,), and responsibilities (levels, k, n) up to a factor for each point."""
        variances, μ = self.covariances[:, 0, 0] + jnp.square(h)[:, None], self.means[:, 0]
        P = 1 / variances
        parabolas = [self.log_weights - 0.5 * jnp.log(variances) - 0.5 * P * μ**2, P * μ, -0.5 * P]
        logs = jnp.stack(parabolas, 2) @ jnp.stack([jnp.ones_like(y), y, y**2], 1)
        return P, μ, jnp.exp(logs - logs.max(axis=1, keepdims=True))


def _inverse(S: Float[Array, "k d d"]) -> tuple[Float[Array, "k d d"], Float[Array, " k"]]:
    """Inverses and log determinants of covariance matrices; for small ones by Cholesky's algorithm, unrolled.

    One library call per matrix would cost more than its few operations. Unrolled operations run over all matrices at
    once.
    """
    d = S.shape[-1]
    if d > FEW_COLUMNS:
        return inverse_and_log_det(S)
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
    """A mixture prepared for many points: log q(y) = logsumexp_k(log_scale_k - |y - mean_k|^2_P_k / 2)."""

    log_scales: Float[Array, " k"]
    means: Float[Array, "k d"]
    precisions: Float[Array, "k d d"]
    traces: Float[Array, " k"]

    def components(self, y: Float[Array, "n d"]) -> "_Components":
        """Residuals, scores and log densities of the components at n points."""
        residuals = y.T - self.means[:, :, None]
        scores = -self.times_precisions(residuals)
        return _Components(residuals, scores, self.log_scales[:, None] + 0.5 * (scores * residuals).sum(axis=1))

    def times_precisions(self, v: Float[Array, "k d n"]) -> Float[Array, "k d n"]:
        """P_k v_k, by one matrix product per component for all points."""
        return self.precisions * v if v.shape[1] == 1 else self.precisions @ v

    def log_prob(self, y: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Log density at n points."""
        return jax.nn.logsumexp(self.components(y).logs, axis=0)

    def polynomials(self, centre: Float[Array, " d"] | None = None) -> "MixturePolynomials":
        """The mixture as polynomials in the coordinates of a point, for few columns."""
        return MixturePolynomials.of(self, centre)

    def derivatives(self, y: Float[Array, "n d"]) -> Derivatives:
        """Score and Laplacian of the log density at n points.

        With r_k the responsibilities and s_k the components' scores: score s = sum r_k s_k, Laplacian
        sum r_k (|s_k - s|^2 - tr P_k). This form, with the variance of s_k, avoids cancellation for distant points.
        """
        return _derivatives(self, y)


class MixturePolynomials(NamedTuple):
    """A mixture prepared for very many points in few columns: log densities of components are quadratic in y.

    So are |s_k|^2 - tr P_k, where s_k, the components' scores, are linear in y. The values of these polynomials at n
    points, and their sums with responsibilities r_k, are products of small matrices with the monomials of y. This takes
    less than half as long as `FactoredMixture.derivatives`. Coordinates are relative to the mixture's mean. The
    Laplacian has rounding errors relative to |s|^2, to which a loss adds it; in `FactoredMixture.derivatives`, they are
    relative to the Laplacian itself.
    """

    centre: Float[Array, " d"]
    parabolas: Float[Array, "k monomials"]
    """Log densities of the components: coefficients of 1, y_i, and y_i y_j with i <= j."""
    sums: Float[Array, "rows k"]
    """For each component: 1, s_k at the centre, entries of -P_k, and coefficients of |s_k|^2 - tr P_k."""

    @classmethod
    def of(cls, mixture: FactoredMixture, centre: Float[Array, " d"] | None = None) -> "MixturePolynomials":
        """The polynomials of a mixture, in coordinates relative to its mean or to another point `centre` near it."""
        log_scales, means, P, traces = mixture
        upper = np.triu_indices(means.shape[1])
        centre = jax.nn.softmax(log_scales) @ means if centre is None else centre
        means = means - centre
        scores = (P @ means[..., None])[..., 0]  # at the centre

        def parabola(constant: Array, linear: Array, square: Array) -> Array:
            twice = np.where(upper[0] == upper[1], 1.0, 2.0)
            return jnp.concatenate([constant[:, None], linear, twice * square[:, *upper]], axis=1)

        logs = parabola(log_scales - 0.5 * (scores * means).sum(axis=1), scores, -0.5 * P)
        squares = parabola((scores**2).sum(axis=1) - traces, -2 * (P @ scores[..., None])[..., 0], P @ P)
        rows = jnp.concatenate([jnp.ones_like(traces)[:, None], scores, -P[:, *upper], squares], axis=1)
        return cls(centre, logs, rows.T)

    def derivatives(self, y: Float[Array, "n d"]) -> Derivatives:
        """Score and Laplacian of the log density at n points: sum r_k s_k, and sum r_k (|s_k|^2 - tr P_k) - |s|^2."""
        d = y.shape[1]
        upper = np.triu_indices(d)
        z = [y[:, i] - self.centre[i] for i in range(d)]
        monomials = [jnp.ones_like(z[0]), *z, *(z[i] * z[j] for i, j in zip(*upper, strict=True))]
        logs = self.parabolas @ jnp.stack(monomials)
        total, *found = self.sums @ jnp.exp(logs - logs.max(axis=0))
        s, minus_p, squares = found[:d], found[d : -len(monomials)], found[-len(monomials) :]
        for entry, i, j in zip(minus_p, *upper, strict=True):
            s[i] = s[i] + entry * z[j]
            if i != j:
                s[j] = s[j] + entry * z[i]
        s = [one / total for one in s]
        square = sum(a * b for a, b in zip(squares, monomials, strict=True)) / total
        return Derivatives(jnp.stack(s, axis=1), square - sum(one**2 for one in s))


class _Components(NamedTuple):
    """Values of the components, with points on the last axis, which vectorises best."""

    residuals: Float[Array, "k d n"]
    scores: Float[Array, "k d n"]
    logs: Float[Array, "k n"]

    def mixed(self):
        """Responsibilities, score of the mixture, deviations of the components' scores from it and their squares."""
        r = jax.nn.softmax(self.logs, axis=0)
        s = (r[:, None] * self.scores).sum(axis=0)  # a matrix product would not be fused, and would be slower
        # for distant points the deviation of a component with zero responsibility can overflow; it is set to zero
        deviations = jnp.where(r[:, None] > 0, self.scores - s, 0.0)
        return r, s, deviations, (deviations**2).sum(axis=1)


def _score_and_laplacian(mixture: FactoredMixture, y: Float[Array, "n d"]) -> Derivatives:
    r, s, _, spread = mixture.components(y).mixed()
    return Derivatives(s.T, (r * (spread - mixture.traces[:, None])).sum(axis=0))


def _forward(mixture: FactoredMixture, y: Float[Array, "n d"]):
    return _score_and_laplacian(mixture, y), (mixture, y)


def _backward(saved: tuple[FactoredMixture, Float[Array, "n d"]], gradient: Derivatives):
    """The gradient with respect to the mixture and the points, given that with respect to score and Laplacian.

    With g_s and g_l the gradients of score and Laplacian, the score of component k gets r_k (g_s + 2 g_l (s_k - s)),
    and its log density gets r_k (c_k - sum_j r_j c_j) with c_k = g_s'(s_k - s) + g_l (|s_k - s|^2 - tr P_k). Automatic
    differentiation would take several times as long, and memory for all intermediate values.
    """
    mixture, y = saved
    residuals, scores, _ = parts = mixture.components(y)
    r, _, deviations, spread = parts.mixed()
    g_s, g_l = gradient.score.T, gradient.laplacian
    c = (g_s * deviations).sum(axis=1) + g_l * (spread - mixture.traces[:, None])
    of_logs = r * (c - (r * c).sum(axis=0))
    of_scores = r[:, None] * (g_s + 2 * g_l * deviations)
    of_residuals = of_logs[:, None] * scores - mixture.times_precisions(of_scores)
    both = 0.5 * of_logs[:, None] * residuals + of_scores
    half = both @ jnp.swapaxes(residuals, 1, 2)
    of_mixture = FactoredMixture(
        log_scales=of_logs.sum(axis=-1),
        means=-of_residuals.sum(axis=-1),
        precisions=-0.5 * (half + jnp.swapaxes(half, 1, 2)),
        traces=-(r * g_l).sum(axis=-1),
    )
    return of_mixture, of_residuals.sum(axis=0).T


_derivatives = jax.custom_vjp(_score_and_laplacian)
_derivatives.defvjp(_forward, _backward)
