"""From observations to summary statistics: choice of the references of the interpolation.

The references must lie around the posterior, which is not known yet. The posterior of some of the observations is wider
and cheaper: it gives references for a larger part of the observations, and so on until all are included.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.blocks import losses_at
from nsmbayes.losses.cells import CountedLoss
from nsmbayes.losses.interpolated import InterpolatedLoss, Interpolation, Sums
from nsmbayes.losses.pieces import Piece
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers.strategy import Near, rough_population
from nsmbayes.samplers.target import Target

ACCEPTED = 0.1
"""Largest error, in nats, with which an interpolation is accepted."""
_CANDIDATES, _WIDTHS = 128, (0.5, 1.5, 3.5)  # parameters from which references are chosen; their spread around draws
_HEAVY = 6.0  # degrees of freedom of the distribution of candidates
_MODELS = 30  # parameters at which typical observations are drawn from the surrogate
_CHECKED = 32  # draws at which the loss is compared with that of the surrogate itself
_ROUGH, _PER_PARAMETER = 60, 5  # rough draws that locate the posterior: at least, and per parameter
_FIRST, _GROWTH = 1000, 16  # observations of the first posterior, and the factor for the next one
_REPAIRS = 3


class Summary(NamedTuple):
    """Summary statistics of a data set, and how well they reproduce its loss."""

    pieces: tuple[Piece, ...]
    """The observations, in the pieces in which they were added."""
    loss: InterpolatedLoss
    """The loss of all observations; it has the individual losses of the first block of the first piece."""
    error: float
    """The standard deviation, over posterior draws, of beta times this loss minus that of the surrogate."""

    @property
    def n(self) -> int:
        """Number of observations."""
        return sum(piece.n for piece in self.pieces)

    @property
    def sums(self) -> Sums:
        """The sums over the observations, which are all that is kept of them."""
        return Sums(np.asarray(self.loss.A), np.asarray(self.loss.B))

    @double_precision
    def checked(self, theta: Float[np.ndarray, "k d"], beta: float) -> "Summary":
        """A copy with the error at posterior draws: that of the first block, scaled to the number of observations."""
        assert self.loss.rows is not None
        some = theta[np.linspace(0, len(theta) - 1, min(_CHECKED, len(theta))).astype(int)]
        [exact] = losses_at([self.loss.rows.loss], some)
        off = np.std(self._of_first(some) - exact.sum(axis=1))
        return self._replace(error=float(beta * self.n / self.pieces[0].in_first * off))

    def _of_first(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """The loss of the first block at k thetas, from the sums if there is no other block."""
        if len(self.pieces) == 1 and self.pieces[0].blocks == 1:
            return map_rows(_total, theta, self.loss)
        return losses_at([self.loss], theta)[0].sum(axis=1)

    def extended(self, piece: Piece) -> "Summary":
        """A copy with the observations of one more piece."""
        sums = self.sums + piece.sums(self.loss.interpolation)
        return self._replace(pieces=(*self.pieces, piece), loss=_with_sums(self.loss, sums))

    def describe(self) -> str:
        """How good the approximation is, in a sentence for users."""
        k, levels = len(self.loss.interpolation.references), len(self.loss.A)
        verdict = "" if self.error <= ACCEPTED else " This is more than it should be: compare with NSMBayes."
        return (
            f"Computed from {levels} matrices of {k} by {k} numbers, whose loss differs from that of the surrogate by "
            f"{self.error:.2g} nats (standard deviation over draws).{verdict}"
        )


@double_precision
def summarise(
    prior: UnconstrainedPrior,
    setting: NSMSetting,
    piece: Piece,
    near: Float[np.ndarray, "k d"],
    *,
    beta: float,
    seed: int,
) -> tuple[Summary, Near]:
    """Summary statistics of observations for the posterior at `beta`, and a start for a sampler of this posterior.

    `near` are unconstrained draws of the posterior of at most 1,000 of the observations, or draws that cover it.
    """
    count = max(_ROUGH, _PER_PARAMETER * prior.dim)
    used = min(piece.n, _FIRST)
    while True:
        used = piece.n if piece.n <= 2 * _GROWTH * used else _GROWTH * used
        loss = _interpolated(prior, setting, piece, near, used, seed)
        rough = rough_population(Target(prior, loss, jnp.asarray(beta)), near, count=count, seed=seed)
        near = rough.draws
        if used == piece.n:
            break
    summary = Summary((piece,), loss, np.inf)
    for repair in range(_REPAIRS):
        summary = summary.checked(constrain_rows(prior, rough.draws), beta)
        if summary.error <= ACCEPTED:
            break
        loss = _interpolated(prior, setting, piece, rough.draws, piece.n, seed + repair)
        summary = summary._replace(loss=loss)
        rough = rough_population(Target(prior, loss, jnp.asarray(beta)), rough.draws, count=count, seed=seed)
    return summary, rough.near


@double_precision
def around(summary: Summary, prior: UnconstrainedPrior, setting: NSMSetting, near: np.ndarray, seed: int) -> Summary:
    """A summary of the same observations with references around the draws `near`."""
    loss = _interpolated(prior, setting, summary.pieces[0], near, summary.pieces[0].n, seed)
    sums = Sums(np.asarray(loss.A), np.asarray(loss.B))
    for piece in summary.pieces[1:]:
        sums = sums + piece.sums(loss.interpolation)
    return summary._replace(loss=_with_sums(loss, sums))


def _interpolated(
    prior: UnconstrainedPrior, setting: NSMSetting, piece: Piece, near: np.ndarray, used: int, seed: int
) -> InterpolatedLoss:
    """The loss with references around the draws `near`, scaled to `used` observations."""
    rng = np.random.default_rng([seed, used])
    covariance = np.atleast_2d(np.cov(near.T)) + 1e-12 * np.eye(near.shape[1])
    shape = (_CANDIDATES, near.shape[1])
    steps = rng.standard_normal(shape) @ np.linalg.cholesky(covariance).T
    width = rng.choice(_WIDTHS, _CANDIDATES) * np.sqrt(_HEAVY / rng.chisquare(_HEAVY, _CANDIDATES))
    candidates = constrain_rows(prior, near[rng.integers(len(near), size=_CANDIDATES)] + width[:, None] * steps)
    models = constrain_rows(prior, near[rng.integers(len(near), size=_MODELS)])
    interpolation = Interpolation.fit(setting, candidates, models, seed)
    blocks = None
    if not isinstance(piece.source, CountedLoss):
        blocks = min(piece.blocks, -(-used // piece.source.size))
    summed = piece.n if blocks is None else min(piece.n, blocks * piece.in_first)
    (A, B), rows = piece.summed(interpolation, blocks)
    scale = used / summed
    return InterpolatedLoss(interpolation, jnp.asarray(scale * A), jnp.asarray(scale * B), rows)


def _total(theta: Float[Array, " d"], loss: InterpolatedLoss) -> Float[Array, ""]:
    return loss(theta)


def _with_sums(loss: InterpolatedLoss, sums: Sums) -> InterpolatedLoss:
    with_x64 = double_precision(lambda: (jnp.asarray(sums.A), jnp.asarray(sums.B)))
    return InterpolatedLoss(loss.interpolation, *with_x64(), loss.rows)
