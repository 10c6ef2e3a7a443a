"""Calibration of many data sets of one column by `PathCalibration`: the same steps as one compiled program.

The loss of a data set is a sum over lattice points, and that of a bootstrap resample has other weights there. So the
losses of all resamples at all draws are one product of matrices, and a GPU calibrates hundreds of data sets at once.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from nsmbayes._internal.linalg import inverse_and_log_det
from nsmbayes._internal.parallel import call_each, on_processor
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration.base import CalibrationResult, resample_counts
from nsmbayes.calibration.path import JUDGED, PathCalibration, choose
from nsmbayes.losses.lines import LineLoss, Whitened
from nsmbayes.losses.noise_levels import lattice_offsets, lattice_step
from nsmbayes.samplers.compiled import Sampled, row_of
from nsmbayes.samplers.target import Target
from nsmbayes.weights import Weight

_AT_ONCE, _AT_ONCE_ON_GPU = None, 64  # parameters at which losses are computed together; None is one by one
_SHARED = 4  # arguments of all data sets
_SETS_ON_GPU = 64  # data sets that are judged together
_DRAWS = 64  # draws at which the losses of resamples are computed by one product
# In units of the variance of all draws: the covariance of a few draws that carry all the weight is singular.
_RIDGE = 1e-10


class Resampling(NamedTuple):
    """The observations of several data sets, in units of the scale of each, and their overall weights."""

    y: Float[np.ndarray, "k n"]
    overall: Float[np.ndarray, "k n"]
    """Zero beyond the end of a data set."""
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, data: Whitened, weight: Weight) -> "Resampling":
        """Pad the data sets to the next power of two, so that few shapes are compiled."""
        most = 1 << (max(data.sizes) - 1).bit_length()
        there = np.arange(most) < np.array(data.sizes)[:, None]
        y, overall = np.zeros(there.shape), np.zeros(there.shape)
        y[there], overall[there] = data.clipped, data.overall(weight)
        return cls(y, overall, data.sizes)

    def counts(self, resamples: int, seed: int) -> tuple[UInt[np.ndarray, "sizes resamples n"], Int[np.ndarray, " k"]]:
        """Counts of the observations in each resample, for every size of data sets, and the size number of each set."""
        sizes, which = np.unique(self.sizes, return_inverse=True)
        table = np.zeros((1 << (len(sizes) - 1).bit_length(), resamples, self.y.shape[1]), np.uint16)
        for place, n in enumerate(sizes):
            table[place, :, :n] = resample_counts(n, resamples, np.random.default_rng(seed))
        return table, which


@double_precision
def calibrate_many(
    calibration: PathCalibration, targets: Target, axes: Any, rows: Resampling, drawn: Sampled, *, seed: int
) -> list[CalibrationResult]:
    """Calibrate each of k posteriors, stacked as for `sample_many`, from draws at the largest learning rate.

    The reference is the posterior mean.
    """
    k, d = len(drawn.positions), drawn.positions.shape[-1]
    flat = drawn.positions.reshape(k, -1, d)
    judged = flat[:, :: -(-flat.shape[1] // JUDGED)]
    relative = np.where(np.isfinite(drawn.log_priors), drawn.log_proposals - drawn.log_priors, np.inf)
    counts, which = rows.counts(calibration.bootstraps, seed)
    betas = np.geomspace(calibration.smallest, calibration.largest, calibration.grid)
    own = (rows.y, rows.overall, which, judged, flat.mean(axis=1), drawn.visited, drawn.losses, relative)
    shared = (counts, betas, np.asarray(calibration.target), np.asarray(calibration.least_ess))
    assert len(shared) == _SHARED
    if on_processor():
        arguments = [row_of((targets, *own), (axes, *(0 for _ in own)), i) for i in range(k)]
        found = call_each(_judge, arguments, *shared, _AT_ONCE)
    else:
        starts, every = range(0, k, _SETS_ON_GPU), (axes, *(0 for _ in own))
        blocks: list[Any] = [slice(start, start + _SETS_ON_GPU) for start in starts]
        if blocks[-1].stop > k:  # filled up with repeats
            blocks[-1] = np.minimum(np.arange(blocks[-1].start, blocks[-1].stop), k - 1)
        parts = call_each(_judge_stacked, [row_of((targets, *own), every, block) for block in blocks], axes, *shared)
        found = [one for part in parts for one in zip(*part, strict=True)][:k]
    tried = [
        (betas[-1:], first[None]) if first >= calibration.target else (betas[lowest:], rest[lowest:])
        for first, rest, lowest in found
    ]
    return [calibration.result(*each, *choose(*each, calibration.target)) for each in tried]


def _judge_stacked(targets, *more):
    own, (axes, *shared) = more[: -_SHARED - 1], more[-_SHARED - 1 :]

    def one(*mine: Any) -> Any:
        judge: Any = _judge
        return judge(*mine, *shared, _AT_ONCE_ON_GPU)

    return jax.vmap(one, in_axes=(axes, *(0 for _ in own)))(targets, *own)


def _judge(
    target: Target,
    y: Float[Array, " n"],
    overall: Float[Array, " n"],
    which: Int[Array, ""],
    judged: Float[Array, "draws d"],
    reference: Float[Array, " d"],
    visited: Float[Array, "total d"],
    losses: Float[Array, " total"],
    relative: Float[Array, " total"],
    counts: UInt[Array, "sizes resamples n"],
    betas: Float[Array, " grid"],
    level: Float[Array, ""],
    least: Float[Array, ""],
    at_once: int | None,
) -> tuple[Float[Array, ""], Float[Array, " grid"], Int[Array, ""]]:
    """The coverage at the largest rate; where it misses the target, at lower rates down to the first that meets it.

    Also the number of the lowest rate that was tried. Coverage is NaN where it cannot be judged.
    """
    loss: Any = target.loss
    excess = (resample_shares(loss, y, overall, counts[which].astype(y.dtype)) - 1).astype(jnp.float32)

    def at_points(u: Float[Array, " d"]) -> Float[Array, " points"]:
        found = loss.at_points(target.prior.constrain(u)).ravel()
        return jnp.where(jnp.isfinite(found), found, 0.0)

    centre = at_points(reference)

    def changes(u: Float[Array, "draws d"], used: Int[Array, ""] | int) -> Float[Array, "resamples draws"]:
        """The losses of the resamples minus that of the data, at the used draws, up to a constant for each resample.

        In single precision: these are differences of a few nats, and an error of 1e-3 nats does not matter.
        """
        padded = jnp.pad(u, ((0, -len(u) % _DRAWS), (0, 0)))

        def some(block, found):
            start = block * _DRAWS
            mine = jax.lax.dynamic_slice_in_dim(padded, start, _DRAWS)
            points = jax.lax.map(at_points, mine, batch_size=at_once) - centre
            product = jnp.matmul(excess, points.astype(jnp.float32).T, precision="highest")
            return jax.lax.dynamic_update_slice_in_dim(found, product.astype(y.dtype), start, axis=1)

        nothing = jnp.zeros((len(excess), len(padded)), y.dtype)
        return jax.lax.fori_loop(0, -(-used // _DRAWS), some, nothing)[:, : len(u)]

    def coverage(u, log_weights, reference):
        found, ess = reweighted_coverage(u, log_weights, reference, level)
        return jnp.where(ess * len(u) >= least, found, jnp.nan)

    first = coverage(judged, -betas[-1] * changes(judged, len(judged)), reference)

    def path():
        used = (jnp.isfinite(relative) * jnp.arange(1, len(relative) + 1)).max()
        resampled = losses + changes(visited, used)

        def lower(state):
            found, lowest = state
            beta = betas[lowest - 1]
            reference = jax.nn.softmax(-beta * losses - relative) @ visited
            return found.at[lowest - 1].set(coverage(visited, -beta * resampled - relative, reference)), lowest - 1

        def go_on(state):
            found, lowest = state
            met = found[jnp.minimum(lowest, len(betas) - 1)] >= level
            return (lowest > 0) & ~met

        return jax.lax.while_loop(go_on, lower, (nothing, jnp.asarray(len(betas))))

    nothing = jnp.full_like(betas, jnp.nan)
    return first, *jax.lax.cond(first >= level, lambda: (nothing, jnp.asarray(len(betas) - 1)), path)


def resample_shares(
    loss: LineLoss, y: Float[Array, " n"], overall: Float[Array, " n"], counts: Float[Array, "resamples n"]
) -> Float[Array, "resamples points"]:
    """The total weight of each resample at each point of a loss, relative to that of the data.

    An observation has weights at the lattice points around it, by the density of the noise, as in `losses.lines`.
    """
    offsets = jnp.asarray(lattice_offsets())

    def of_row(row):
        h, points = row
        step = lattice_step(h)
        numbers = jnp.rint(y / step)

        def noise(places):
            return jnp.exp(-0.5 * ((places - y[:, None]) / h) ** 2)

        near = jnp.abs(jnp.rint(points / step) - numbers[:, None]) <= offsets[-1] + 0.5
        mine = jnp.where(near, noise(points[None]), 0.0)
        mine *= (overall / noise(step * (numbers[:, None] + offsets)).sum(axis=1))[:, None]
        return counts @ mine / jnp.maximum(mine.sum(axis=0), 1e-300)

    rows = jax.lax.map(of_row, (jnp.asarray(loss.h), jnp.asarray(loss.y)))
    return jnp.swapaxes(rows, 0, 1).reshape(len(counts), -1)


def reweighted_coverage(
    positions: Float[Array, "draws d"],
    log_weights: Float[Array, "resamples draws"],
    reference: Float[Array, " d"],
    level: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`importance.reweighted_coverage`, compiled."""
    W = jax.nn.softmax(log_weights, axis=1)
    shared = W.mean(axis=0)
    centre = shared @ positions
    scale = jnp.maximum(jnp.sqrt(shared @ (positions - centre) ** 2), 1e-300)
    z, at = (positions - centre) / scale, (reference - centre) / scale
    d = z.shape[1]
    products = (z[:, :, None] * z[:, None, :]).reshape(-1, d * d)
    means = W @ z
    covariances = (W @ products).reshape(-1, d, d) - means[:, :, None] * means[:, None, :]
    solve, _ = inverse_and_log_det(covariances + _RIDGE * jnp.eye(d))
    slopes = jnp.einsum("rij,rj->ri", solve, means)
    distances = solve.reshape(-1, d * d) @ products.T - 2 * slopes @ z.T
    of_reference = jnp.einsum("i,rij,j->r", at, solve, at) - 2 * slopes @ at
    inside = jnp.where(distances < of_reference[:, None], W, 0.0).sum(axis=1) < level
    return inside.mean(dtype=W.dtype), (1 / (W**2).sum(axis=1)).mean() / len(positions)
