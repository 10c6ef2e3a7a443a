"""The NSM loss of the exponential family on a data set: a quadratic function of theta, summed in chunks."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nsmbayes._precision import double_precision
from nsmbayes.losses import Quadratic, nsm_quadratic
from nsmbayes.surrogates import ExponentialFamily
from nsmbayes.weights import LocationScatter, Weight, evaluate, fit_location_scatter

_BLOCK = 65536  # observations handed to one compiled call
_CHUNK = 512  # observations whose hidden layers are in memory at once


class FamilyLoss(eqx.Module):
    """The loss of one observation, for the weight and the coordinates y = L^-1 (x - location) as they stand."""

    family: ExponentialFamily
    weight: Weight
    centre: LocationScatter
    basis: Float[Array | np.ndarray, "d_x d_x"]

    def weigh(self, x: Float[Array, " d_x"]) -> tuple[Float[Array, ""], Float[Array, " d_x"]]:
        """w(x)^2 and its gradient in y."""
        w2, grad_w2 = evaluate(self.weight, self.centre, x)
        return w2, grad_w2 @ self.basis

    def __call__(self, x: Float[Array, " d_x"]) -> Quadratic:
        """The loss of x as a quadratic in theta."""
        family = self.family.family_derivatives(x, jnp.asarray(self.basis))
        # Without the barrier XLA evaluates the networks once more for every sum that uses their derivatives.
        return nsm_quadratic(*jax.lax.optimization_barrier((family, *self.weigh(x))))


class LossRecipe(eqx.Module):
    """How the loss follows from observed data: which weight, which location and scatter, which coordinates.

    With `whiten` the loss is computed in coordinates whitened by the location and scatter of the data, so that the
    learning rate means the same for every problem and every choice of units; without it, in the units of the
    network's standardiser, as in the paper.
    """

    family: ExponentialFamily
    weight: Weight
    estimator: str = eqx.field(static=True)
    whiten: bool = eqx.field(static=True)

    @double_precision
    def fit(self, x: Float[np.ndarray, "n d_x"]) -> FamilyLoss:
        """The loss for the location and scatter of `x`."""
        return self.around(fit_location_scatter(x, estimator=self.estimator))

    def around(self, centre: LocationScatter) -> FamilyLoss:
        """The loss for a given location and scatter."""
        basis = centre.factor if self.whiten else jnp.diag(self.family.scale_x.scale)
        return FamilyLoss(self.family, self.weight, centre, basis)


@double_precision
def total_loss(loss: FamilyLoss, x: Float[np.ndarray, "n d_x"]) -> Quadratic:
    """Sum of the losses of all rows of `x`."""
    sums = [_block_sum(loss, jnp.asarray(block), jnp.asarray(mask)) for block, mask in _blocks(x)]
    return Quadratic(*(np.sum(parts, axis=0) for parts in zip(*sums, strict=True)))


def each_loss(loss: FamilyLoss, x: Float[np.ndarray, "n d_x"]) -> Iterator[Quadratic]:
    """The losses of the rows of `x`, block after block."""
    for block, mask in _blocks(x):
        with jax.enable_x64(True):  # not the decorator: a generator's body runs after its call has returned
            losses = _block_losses(loss, jnp.asarray(block))
        yield Quadratic(*(np.asarray(a)[mask] for a in losses))


@double_precision
def weights_of(loss: FamilyLoss, x: Float[np.ndarray, "n d_x"]) -> Float[np.ndarray, " n"]:
    """w(x_i) of every row."""
    return np.concatenate(
        [np.sqrt(np.asarray(_block_weights(loss, jnp.asarray(block)))[mask]) for block, mask in _blocks(x)]
    )


def _blocks(x: Float[np.ndarray, "n d_x"]) -> Iterator[tuple[Float[np.ndarray, "size d_x"], Bool[np.ndarray, " size"]]]:
    """Rows in blocks of few distinct sizes, padded with copies of the first row, so that little is compiled."""
    for start in range(0, len(x), _BLOCK):
        block = x[start : start + _BLOCK]
        size = 1 << (len(block) - 1).bit_length()
        yield np.concatenate([block, np.repeat(block[:1], size - len(block), axis=0)]), np.arange(size) < len(block)


@eqx.filter_jit
def _block_losses(loss: FamilyLoss, x: Float[Array, "size d_x"]) -> Quadratic:
    return jax.lax.map(loss, x, batch_size=min(_CHUNK, len(x)))


@eqx.filter_jit
def _block_sum(loss: FamilyLoss, x: Float[Array, "size d_x"], mask: Bool[Array, " size"]) -> Quadratic:
    chunk = min(_CHUNK, len(x))

    def add(total: Quadratic, part) -> tuple[Quadratic, None]:
        rows, keep = part
        losses = jax.vmap(loss)(rows)
        # zero times anything finite: a padded row is a copy of a real one, so nothing here can be NaN
        return Quadratic(*(t + jnp.tensordot(keep, a, 1) for t, a in zip(total, losses, strict=True))), None

    parts = (x.reshape(-1, chunk, x.shape[1]), mask.astype(x.dtype).reshape(-1, chunk))
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(loss, x[0]))
    return jax.lax.scan(add, zero, parts)[0]


@eqx.filter_jit
def _block_weights(loss: FamilyLoss, x: Float[Array, "size d_x"]) -> Float[Array, " size"]:
    return jax.vmap(lambda row: loss.weigh(row)[0])(x)
