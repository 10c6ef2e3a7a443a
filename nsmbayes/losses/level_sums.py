"""The sums A and B of a block of observations, with one compiled call per level; no score is kept.

`RowLosses` keeps the scores of all references at all noisy points, from which it computes the loss of each observation.
Where only sums are needed, these scores would be tens of megabytes to write and to read.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nsmbayes._internal.parallel import call_each
from nsmbayes._internal.precision import double_precision
from nsmbayes.losses.evaluated import NSMLoss
from nsmbayes.losses.interpolated import Interpolation, RowLosses, Sums
from nsmbayes.surrogates import FEW_COLUMNS, Derivatives, MixturePolynomials

_STEPS = 8  # number of lengths that a block without its padding can have
_TOGETHER = 4  # references whose scores are computed at once, so that they fit into a core's cache


@double_precision
def block_sums(interpolation: Interpolation, loss: NSMLoss) -> Sums:
    """A and B of the observations of `loss`; on all cores."""
    levels, d = len(interpolation.noise_levels), loss.y.shape[2]
    if not 1 < d <= FEW_COLUMNS or len(loss.h) != levels:
        return RowLosses.of(interpolation, loss).sums(levels)
    counts = np.asarray(loss.total_weights)
    step = -(-counts.shape[1] // _STEPS)
    used = np.flatnonzero(counts.any(axis=0)).max(initial=0)
    points = min(step * (int(used) // step + 1), counts.shape[1])  # drops most padding, with few lengths to compile
    numbers = [(np.asarray(number),) for number in range(levels)]
    found = call_each(_level_sums, numbers, points, interpolation, loss)
    return Sums(*(np.stack(parts) for parts in zip(*found, strict=True)))


def _level_sums(
    number: Int[Array, ""], points: int, interpolation: Interpolation, loss: NSMLoss
) -> tuple[Float[Array, "k k"], Float[Array, " k"]]:
    """A and B of level `number`, from its first `points` points."""
    surrogate, frame, references = interpolation.surrogate, interpolation.frame, interpolation.references
    h, sizes = loss.h[number, 0], interpolation.sizes[number]
    y, counts, w2, grad_w2 = (a[number, :points] for a in (loss.y, loss.total_weights, loss.w2, loss.grad_w2))
    weights, gradients = counts * w2, counts[:, None] * grad_w2
    k, d = len(references), y.shape[1]
    mixtures = jax.vmap(lambda theta: surrogate.in_frame(theta, frame).smooth(h))(references)
    centre = (jax.nn.softmax(mixtures.log_scales)[..., None] * mixtures.means).sum(axis=1).mean(axis=0)
    polynomials = jax.vmap(lambda mixture: mixture.polynomials(centre))(mixtures)._replace(centre=centre)
    alike = MixturePolynomials(None, 0, 0)  # pyright: ignore[reportArgumentType]

    def some(of: tuple[Array, Array]) -> Derivatives:
        return jax.vmap(MixturePolynomials.derivatives, (alike, None))(MixturePolynomials(centre, *of), y)

    padding = -k % _TOGETHER
    parts = (
        jnp.concatenate([part, jnp.repeat(part[:1], padding, axis=0)]).reshape(-1, _TOGETHER, *part.shape[1:])
        for part in polynomials[1:]
    )
    score, laplacian = jax.lax.map(some, tuple(parts))
    flat = score.reshape(k + padding, -1)[:k] / sizes[:, None]
    weighted = flat * jnp.repeat(weights, d)
    lap = laplacian.reshape(k + padding, -1)[:k] / sizes[:, None]
    return weighted @ flat.T, flat @ gradients.ravel() + lap @ weights
