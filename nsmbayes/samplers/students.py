"""Mixtures of Student distributions as proposals: density, sampling, and fits to weighted draws."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from nsmbayes.errors import ConvergenceError

_FREEDOM = 8.0  # degrees of freedom of the proposals: their tails are heavier than those of most posteriors
_BROAD = 0.1  # share of one component as wide as all draws together, so that no tail is missed
_EM_STEPS = 12


def log_sum_exp(a: Float[np.ndarray, "..."], axis: int | None = None) -> Any:
    """log sum exp(a), without overflow. SciPy's function does more and takes ten times as long for few numbers."""
    largest = a.max(axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        logs = np.log(np.exp(a - largest).sum(axis=axis, keepdims=True)) + largest
    return logs.squeeze(axis)[()]


class StudentMixture(NamedTuple):
    """sum_k weight_k t(mean_k, F_k F_k'), with lower triangular F_k."""

    weights: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k d"]
    factors: Float[np.ndarray, "k d d"]

    def sample(self, size: int, rng: np.random.Generator) -> Float[np.ndarray, "size d"]:
        """Independent draws."""
        k = rng.choice(len(self.weights), size, p=self.weights)
        z = rng.standard_normal((size, self.means.shape[1])) / np.sqrt(rng.chisquare(_FREEDOM, (size, 1)) / _FREEDOM)
        return self.means[k] + np.einsum("nij,nj->ni", self.factors[k], z)

    def log_prob(self, u: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Log density, normalised."""
        d = u.shape[1]
        constant = gammaln((_FREEDOM + d) / 2) - gammaln(_FREEDOM / 2) - 0.5 * d * np.log(_FREEDOM * np.pi)
        squares, log_dets = _mahalanobis(u, self.means, self.factors)
        tails = 0.5 * (_FREEDOM + d) * np.log1p(squares / _FREEDOM)
        return constant + log_sum_exp((np.log(self.weights) - log_dets)[:, None] - tails, axis=0)


class Population(NamedTuple):
    """The draws of all stages, seen as draws from one mixture, and the proposal fitted to them."""

    positions: Float[np.ndarray, "total d"]
    log_priors: Float[np.ndarray, " total"]
    losses: Float[np.ndarray, " total"]
    log_proposals: Float[np.ndarray, " total"]
    """Log density of the mixture of all stages' proposals."""
    proposals: tuple[StudentMixture, ...]
    """The proposals of all stages."""
    best: StudentMixture
    """The proposal for chains: the one with the largest ESS, or the last fit if chains run again."""
    sizes: tuple[int, ...] = ()
    """Number of draws of each stage; empty if all stages have the same number."""
    rough: bool = False
    """Whether it was adapted for rough draws, with only one or two stages at the posterior itself."""

    @property
    def stage_sizes(self) -> tuple[int, ...]:
        """Number of draws of each stage."""
        stages = len(self.proposals)
        return self.sizes or (len(self.positions) // stages,) * stages


def fit_students(u: np.ndarray, weights: np.ndarray, components: int, rng: np.random.Generator) -> StudentMixture:
    """A mixture fitted to weighted draws by expectation maximisation, with a prior so that no covariance collapses.

    The draws are whitened first. Squared distances and moments are then matrix products with the pairwise products of
    coordinates.
    """
    keep = weights > 1e-9 * weights.max()
    u, weights = u[keep], weights[keep] / weights[keep].sum()
    d = u.shape[1]
    centre = weights @ u
    whole = _root(_covariance(u - centre, weights))
    if components == 1:
        return StudentMixture(np.ones(1), centre[None], whole[None])
    z = np.linalg.solve(whole, (u - centre).T).T
    squares = (z[:, :, None] * z[:, None, :]).reshape(-1, d * d)
    features = np.column_stack([np.ones(len(z)), z, squares])
    count = 1 / (weights**2).sum()  # effective draws
    typical, belief = np.eye(d) / components ** (2 / d), (d + 2) / count
    means = z[rng.choice(len(z), components, p=weights, replace=len(z) < components)]
    covariances, shares = np.tile(typical, (components, 1, 1)), np.full(components, 1 / components)
    for _ in range(_EM_STEPS):
        logs = features @ _parabolas(shares, means, covariances)
        logs -= logs.max(axis=1, keepdims=True)
        r = np.exp(logs, out=logs)
        r *= (weights / r.sum(axis=1))[:, None]
        moments = r.T @ features
        mass, first, second = moments[:, 0], moments[:, 1 : d + 1], moments[:, d + 1 :].reshape(-1, d, d)
        shares = (mass + 1 / count) / (mass + 1 / count).sum()
        means = (first + belief * means) / (mass + belief)[:, None]
        cross = first[:, :, None] * means[:, None, :]
        around_means = second - cross - cross.transpose(0, 2, 1) + mass[:, None, None] * _outer(means)
        covariances = (around_means + belief * typical) / (mass + belief)[:, None, None]
    return StudentMixture(
        np.append((1 - _BROAD) * shares, _BROAD),
        np.vstack([centre + means @ whole.T, centre]),
        np.concatenate([whole @ _root(covariances), np.sqrt(2) * whole[None]]),
    )


def _parabolas(shares: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> Float[np.ndarray, "features k"]:
    """Log densities of normal components as polynomials: coefficients of 1, of z, and of products of coordinates."""
    precisions = np.linalg.inv(covariances)
    linear = (precisions @ means[..., None])[..., 0]
    constant = np.log(shares) + 0.5 * np.linalg.slogdet(precisions)[1] - 0.5 * (linear * means).sum(axis=1)
    return np.column_stack([constant, linear, -0.5 * precisions.reshape(len(means), -1)]).T


def _outer(means: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d d"]:
    return means[:, :, None] * means[:, None, :]


def around(draws: Float[np.ndarray, "n d"]) -> StudentMixture:
    """A proposal for a target similar to that of `draws`, or with up to sixteen times its variance."""
    [mean], [factor] = fit_students(draws, np.full(len(draws), 1 / len(draws)), 1, np.random.default_rng(0))[1:]
    return StudentMixture(np.array([0.7, 0.3]), np.stack([mean, mean]), np.stack([factor, 4 * factor]))


def _mahalanobis(
    u: Float[np.ndarray, "n d"], means: Float[np.ndarray, "k d"], factors: Float[np.ndarray, "k d d"]
) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, " k"]]:
    """(u - mean)' (F F')^-1 (u - mean) for every point and component, and log det F."""
    z = np.linalg.inv(factors) @ (u.T - means[:, :, None])
    return (z**2).sum(axis=1), np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)


def _covariance(residuals: np.ndarray, weights: np.ndarray) -> np.ndarray:
    S = (weights[:, None] * residuals).T @ residuals
    return S + 1e-10 * np.trace(S) / len(S) * np.eye(len(S))


def _root(covariances: Float[np.ndarray, "*k d d"]) -> Float[np.ndarray, "*k d d"]:
    """Cholesky factors; raises `ConvergenceError` if all draws with a weight are in one place."""
    try:
        return np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        raise ConvergenceError(
            "Only one of the draws counts: the loss differs so much between parameters that no mixture can follow it."
        ) from None
