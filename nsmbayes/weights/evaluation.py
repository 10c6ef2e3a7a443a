"""Weights of points, given the location and scatter of the observations."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights.base import Weight


def evaluate(
    weight: Weight, location_scatter: LocationScatter, x: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """w²(x) and its gradient ∇ₓ w² at one point; both are finite for every finite x.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from nsmbayes.scatter import LocationScatter
        >>> from nsmbayes.weights import IMQ, evaluate
        >>> standard = LocationScatter.from_scatter(np.zeros(2), np.eye(2), "mad")
        >>> w2, gradient = evaluate(IMQ(zeta=2.0), standard, jnp.array([1.0, 0.0]))
        >>> print(f"{w2:.3f} {gradient[0]:.3f}")
        0.500 -0.500
    """
    r, gradient = location_scatter.distance(x)
    w2, slope = weight.squared(r)
    return w2, slope * gradient


@eqx.filter_jit
def evaluate_many(
    weight: Weight, location_scatter: LocationScatter, x: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """`evaluate` for every row of `x`."""
    return jax.vmap(evaluate, (None, None, 0))(weight, location_scatter, x)


@eqx.filter_jit
def evaluate_each(
    weight: Weight, location_scatters: LocationScatter, x: Float[Array, "k n d"]
) -> tuple[Float[Array, "k n"], Float[Array, "k n d"]]:
    """`evaluate_many` for each of k data sets: k locations and scatters, each with n points."""
    return jax.vmap(jax.vmap(evaluate, (None, None, 0)), (None, 0, 0))(weight, location_scatters, x)


@eqx.filter_jit
def overall_many(weight: Weight, location_scatter: LocationScatter, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """The overall weight of every row of `x`; see `Weight.overall`."""
    return jax.vmap(lambda row: weight.overall(location_scatter.distance(row)[0]))(x)


class Weighting(NamedTuple):
    """How a data set is weighted: a weight, and the location and scatter that define its distances."""

    weight: Weight
    centre: LocationScatter

    @double_precision
    def at(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """w(x_i) of every row, between 0 and 1."""
        w2, _ = evaluate_many(self.weight, self.centre, jnp.asarray(x))
        return np.sqrt(np.asarray(w2))


def as_weight(weight: Any) -> Weight:
    """Return `weight` if it is a `Weight`; raise `InputError` otherwise."""
    return checks.instance(weight, "weight", Weight, "a Weight, e.g. nsmbayes.weights.IMQ(zeta=2.0)")
