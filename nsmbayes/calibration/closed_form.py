"""Calibration problems of posteriors in closed form: resampled losses are quadratic.

In coordinates where the prior is standard normal and the resampled loss is diagonal, the squared Mahalanobis distance
of a reference from the posterior mean is a sum of one term per dimension. One eigendecomposition per resample is then
sufficient for all learning rates.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import stats

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.calibration.base import CalibrationProblem
from nsmbayes.losses.conjugacy import diagonalise, direction_rates, gaussian_posterior
from nsmbayes.losses.pointwise import Quadratic, nsm_quadratic
from nsmbayes.losses.statistics import DataStatistics, FamilyLoss
from nsmbayes.priors import GaussianPrior
from nsmbayes.scatter import LocationScatter, fit_batch
from nsmbayes.weights import evaluate

_ROWS = 16384  # observations whose hidden layers are in memory at the same time
_MEMORY = 4_000_000  # resampled observations in memory at the same time

Ridge = Literal["trace", "condition"]


class Resamples(NamedTuple):
    """Summed losses of bootstrap resamples, and the number of resamples without a scatter of their own."""

    losses: Quadratic
    degenerate: int

    def between(self, start: int, stop: int) -> "Resamples":
        """Return the resamples from `start` to `stop`."""
        return self._replace(losses=Quadratic(*(a[start:stop] for a in self.losses)))


class ClosedFormProblem(CalibrationProblem):
    """The Gaussian posterior of an exponential family, at every learning rate."""

    def __init__(self, prior: GaussianPrior, statistics: DataStatistics, resolution: float = 0.0):
        self.n = statistics.n
        self.prior, self.statistics, self.resolution = prior, statistics, resolution

    def minimiser(self, ridge: Ridge = "trace") -> Float[np.ndarray, " d"]:
        """The parameter that minimises the loss, stabilised by a ridge."""
        return loss_minimiser(self.statistics.average, ridge=ridge)

    def mean(self, beta: Float[np.ndarray, "*betas"] | float) -> Float[np.ndarray, "*betas d"]:
        """The posterior mean at each learning rate."""
        return gaussian_posterior(self.prior, self.statistics.total, beta, self.resolution)[0]

    def coverage(self, resamples: Resamples, level: float) -> "CoverageCurve":
        """Fraction of the regions of resampled posteriors that contain a reference, as a function of learning rate."""
        return coverage_curve(self.prior, resamples.losses, level, self.resolution)

    @double_precision
    def resample(self, resamples: int, seed: int) -> Resamples:
        """Total loss of each of `resamples` data sets drawn from the observations with replacement.

        Every resample has its own location and scatter, and therefore its own weights. The coordinates of the loss are
        a choice of units and remain those of the full data. With noise levels, which are relative to the scatter,
        location and scatter also remain those of the full data.
        """
        loss, estimator = self.statistics.loss, self.statistics.recipe.estimator
        if not isinstance(loss, FamilyLoss):
            return Resamples(self._resample_fixed(resamples, seed), 0)
        x, n = self.statistics.dequantised, self.n
        multiples = jnp.asarray(np.concatenate(self.statistics.multiples))
        full = np.asarray(loss.centre.location), np.asarray(loss.centre.scatter)
        rng, chunk = np.random.default_rng(seed), max(1, min(resamples, _MEMORY // n))
        parts, degenerate = [], 0
        for i, key in enumerate(jax.random.split(seed_key(seed), -(-resamples // chunk))):
            drawn = rng.integers(n, size=(min(chunk, resamples - i * chunk), n), dtype=np.int32)
            location, scatter, ok = fit_batch(x[drawn], estimator, key, warm_start=full)
            degenerate += int((~ok).sum())
            location[~ok], scatter[~ok] = full
            centres = LocationScatter.from_scatter(location, scatter, estimator)
            losses = _resample(loss, jnp.asarray(x), multiples, jnp.asarray(drawn), centres)
            parts.append(jax.tree.map(np.asarray, losses))
        return Resamples(Quadratic(*(np.concatenate(a) for a in zip(*parts, strict=True))), degenerate)

    def _resample_fixed(self, resamples: int, seed: int) -> Quadratic:
        """Sums of the losses of the observations, each multiplied by the number of times it was drawn."""
        n, rng = self.n, np.random.default_rng(seed)
        each, at = [], 0
        for block in self.statistics.each():
            each = each or [np.empty((n, *part.shape[1:])) for part in block]
            for whole, part in zip(each, block, strict=True):
                whole[at : at + len(part)] = part
            at += len(block.A)
        chunk = max(1, min(resamples, _MEMORY // n))
        sums = []
        for start in range(0, resamples, chunk):
            counts = np.empty((min(chunk, resamples - start), n))
            for row in counts:
                row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
            sums.append([np.tensordot(counts, a, 1) for a in each])
        return Quadratic(*(np.concatenate(parts) for parts in zip(*sums, strict=True)))


@eqx.filter_jit
def _resample(
    loss: FamilyLoss,
    x: Float[Array, "n d_x"],
    multiples: Float[Array, " n"],
    rows: Int[Array, "resamples n"],
    centres: LocationScatter,
) -> Quadratic:
    """Total losses of resamples, in blocks of observations: the hidden layers of all would take gigabytes."""
    counts = multiples * jax.vmap(lambda drawn: jnp.bincount(drawn, length=len(x)))(rows).astype(x.dtype)
    size = min(_ROWS, len(x))
    padding = -len(x) % size  # copies of the first observation with a count of zero
    blocks = jnp.concatenate([x, jnp.repeat(x[:1], padding, axis=0)]).reshape(-1, size, x.shape[1])
    counts = jnp.pad(counts, ((0, 0), (0, padding))).reshape(len(counts), -1, size).swapaxes(0, 1)

    def of_block(x: Float[Array, "size d_x"], counts: Float[Array, "resamples size"]) -> Quadratic:
        family = jax.vmap(loss.family.family_derivatives, (0, None))(x, jnp.asarray(loss.basis))

        def resampled(count: Float[Array, " size"], centre: LocationScatter) -> Quadratic:
            w2, grad_w2 = jax.vmap(evaluate, (None, None, 0))(loss.weight, centre, x)
            # the loss is linear in (w^2, grad w^2): counting a point twice means doubling both
            losses = jax.vmap(nsm_quadratic)(family, count * w2, count[:, None] * (grad_w2 @ loss.basis))
            return jax.tree.map(lambda a: a.sum(axis=0), losses)

        return jax.vmap(resampled)(counts, centres)

    first = of_block(blocks[0], counts[0])
    if len(blocks) == 1:
        return first
    total, _ = jax.lax.scan(
        lambda total, block: (jax.tree.map(jnp.add, total, of_block(*block)), None), first, (blocks[1:], counts[1:])
    )
    return total


class CoverageCurve(NamedTuple):
    """Resamples in their diagonal coordinates: theta = mean + S U t, loss sum(λ t^2 + 2 b t)."""

    mean: Float[np.ndarray, " d"]
    S: Float[np.ndarray, "d d"]
    U: Float[np.ndarray, "resamples d d"]
    λ: Float[np.ndarray, "resamples d"]
    b: Float[np.ndarray, "resamples d"]
    threshold: float
    resolution: float

    def __call__(
        self, beta: Float[np.ndarray, "*betas"] | float, reference: Float[np.ndarray, "*betas_or_none d"]
    ) -> Float[np.ndarray, "*betas"]:
        """Fraction of resamples whose region contains the reference (which may vary with beta), for each beta."""
        k = 2 * direction_rates(np.asarray(beta)[..., None, None], self.λ, self.resolution)
        standard = np.linalg.solve(self.S, (reference - self.mean)[..., None])[..., 0]
        t = np.einsum("rij,...i->...rj", self.U, standard)
        distance = ((t + k * (self.λ * t + self.b)) ** 2 / (1 + k * self.λ)).sum(axis=-1)
        return np.asarray((distance <= self.threshold).mean(axis=-1))


def coverage_curve(prior: GaussianPrior, resampled: Quadratic, level: float, resolution: float = 0.0) -> CoverageCurve:
    """Build the coverage curve of the regions of probability `level` of the resampled posteriors."""
    S, λ, U, b = diagonalise(prior, resampled)
    threshold = float(stats.chi2.ppf(level, prior.dim))
    return CoverageCurve(mean=prior.mean, S=S, U=U, λ=λ, b=b, threshold=threshold, resolution=resolution)


def loss_minimiser(
    average: Quadratic, *, ridge: Ridge = "trace", target_condition: float = 1e4
) -> Float[np.ndarray, " d"]:
    """The theta that minimises theta' A theta + 2 theta' B + lambda |theta|^2, that is -(A + lambda I)^-1 B.

    ridge="trace" uses the paper's lambda = 10^-2 tr(A) / d + 10^-12; ridge="condition" the smallest lambda for which
    the condition number of A + lambda I is at most `target_condition`. (The paper writes the penalty as
    lambda / 2 |theta|^2, whose minimiser would have lambda / 2 in the matrix; this function uses lambda.)
    """
    d = len(average.B)
    if checks.choice(ridge, "ridge", ("trace", "condition")) == "trace":
        penalty = 1e-2 * np.trace(average.A) / d + 1e-12
    else:
        eigenvalues = np.linalg.eigvalsh(average.A)
        low, high = max(eigenvalues[0], 0.0), eigenvalues[-1]
        penalty = max(0.0, (high - target_condition * low) / (target_condition - 1))
    return -np.linalg.solve(average.A + penalty * np.eye(d), average.B)
