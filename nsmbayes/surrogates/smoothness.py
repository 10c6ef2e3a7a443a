"""A check that a density is twice differentiable in x, which score matching needs."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.surrogates.base import Density

_LINES = 64
_POINTS = 4097
_LENGTH = 0.5  # length of a line, in robust scales of the simulations
_TOLERANCE = 1e-3


@double_precision
def require_smooth(density: Density, theta: Float[np.ndarray, "m d_theta"], x: Float[np.ndarray, "m d_x"]) -> None:
    """Raise an error for a density whose score has jumps, such as that of a spline flow or a ReLU network.

    Along lines through simulations, the integral of the second derivative of log q must equal the change of the first.
    If the first derivative jumps, the second one from automatic differentiation misses the jump.
    """
    rng = np.random.default_rng(0)
    rows = rng.integers(len(x), size=_LINES)
    scale = np.subtract(*np.quantile(x, [0.75, 0.25], axis=0)) / 1.35
    directions = _LENGTH * scale * rng.standard_normal((_LINES, x.shape[1]))
    slopes, curvatures = map(np.asarray, _along_lines(density, theta[rows], x[rows] - directions / 2, directions))
    change = slopes[:, -1] - slopes[:, 0]
    variation = np.abs(np.diff(slopes, axis=1)).sum(axis=1) + np.abs(curvatures).mean(axis=1)
    error, coarser_error = (
        np.abs(np.trapezoid(curvatures[:, ::step], dx=step / (_POINTS - 1), axis=1) - change) for step in (1, 4)
    )
    # the error of a jump remains on a finer grid; that of a narrow peak decreases
    jumps = (error > _TOLERANCE * variation) & (error > 0.3 * coarser_error)
    if jumps.any() or not np.isfinite(slopes).all():
        raise InputError(
            f"`density` is not twice differentiable in x: on {max(jumps.sum(), 1)} of {_LINES} lines through the "
            "simulations its score jumps or is not finite. Score matching is not valid for such densities, e.g. spline "
            "flows or ReLU networks. Use a Gaussian mixture, or affine transforms with smooth activations such as tanh."
        )


def _along_lines(density, theta, start, direction):
    @jax.jit
    def along(theta, start, direction):
        def slope(t):
            return jax.grad(lambda t: density.log_prob(theta, start + t * direction))(t)

        return jax.lax.map(lambda t: (slope(t), jax.grad(slope)(t)), jnp.linspace(0, 1, _POINTS), batch_size=_POINTS)

    return jax.lax.map(lambda line: along(*line), tuple(map(jnp.asarray, (theta, start, direction))))
