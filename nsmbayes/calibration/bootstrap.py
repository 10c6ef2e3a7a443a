"""Bootstrap resamples of the conjugate loss."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._precision import double_precision
from nsmbayes._seeds import seed_key
from nsmbayes.losses import Quadratic, nsm_quadratic
from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.family_loss import FamilyLoss
from nsmbayes.weights import LocationScatter, evaluate, fit_batch

_MEMORY = 4_000_000  # resampled observations held at once


class Resamples(NamedTuple):
    """Summed losses of bootstrap resamples, and how many could not be given a scatter of their own."""

    losses: Quadratic
    degenerate: int


@double_precision
def bootstrap_losses(posterior: ConjugatePosterior, resamples: int, seed: int) -> Resamples:
    """Total loss of each of `resamples` data sets drawn from the posterior's observations with replacement.

    Every resample gets its own location and scatter, hence its own weights; the coordinates of the loss are a choice
    of units and stay those of the full data. With noise levels, whose sizes follow from the scatter, location and
    scatter stay those of the full data.
    """
    x, n = posterior.x, posterior.n
    loss, estimator = posterior.point_loss, posterior.recipe.estimator
    if not isinstance(loss, FamilyLoss):
        return Resamples(_resample_fixed(posterior, resamples, seed), 0)
    rows = np.random.default_rng(seed).integers(n, size=(resamples, n), dtype=np.int32)
    chunk = max(1, min(resamples, _MEMORY // n))
    parts, degenerate = [], 0
    for i, key in enumerate(jax.random.split(seed_key(seed), -(-resamples // chunk))):
        drawn = rows[i * chunk : (i + 1) * chunk]
        location, scatter, ok = fit_batch(x[drawn], estimator, key, warm_start=posterior.location_scatter)
        degenerate += int((~ok).sum())
        location[~ok], scatter[~ok] = posterior.location_scatter
        centres = LocationScatter.from_scatter(location, scatter, estimator)
        parts.append(jax.tree.map(np.asarray, _resample(loss, jnp.asarray(x), jnp.asarray(drawn), centres)))
    return Resamples(Quadratic(*(np.concatenate(a) for a in zip(*parts, strict=True))), degenerate)


def _resample_fixed(posterior: ConjugatePosterior, resamples: int, seed: int) -> Quadratic:
    """Sums of the losses of each observation, counted as often as it was drawn."""
    each = [np.concatenate(parts) for parts in zip(*posterior.each_loss(), strict=True)]
    n, rng = posterior.n, np.random.default_rng(seed)
    counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64) for _ in range(resamples)])
    return Quadratic(*(np.tensordot(counts, a, 1) for a in each))


@eqx.filter_jit
def _resample(
    loss: FamilyLoss, x: Float[Array, "n d_x"], rows: Int[Array, "resamples n"], centres: LocationScatter
) -> Quadratic:
    counts = jax.vmap(lambda drawn: jnp.bincount(drawn, length=len(x)))(rows).astype(x.dtype)
    family = jax.vmap(loss.family.family_derivatives, (0, None))(x, jnp.asarray(loss.basis))

    def resampled(count: Float[Array, " n"], centre: LocationScatter) -> Quadratic:
        w2, grad_w2 = jax.vmap(evaluate, (None, None, 0))(loss.weight, centre, x)
        # the loss is linear in (w^2, grad w^2): counting a point twice is doubling both
        losses = jax.vmap(nsm_quadratic)(family, count * w2, count[:, None] * (grad_w2 @ loss.basis))
        return jax.tree.map(lambda a: a.sum(axis=0), losses)

    return jax.vmap(resampled)(counts, centres)
