"""The losses of single points.

Derivatives and gradients are in the coordinates y in which the loss is computed; see `Derivatives`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes.surrogates import FEW_COLUMNS, Derivatives, ExponentialFamily, FamilyDerivatives, NoisyFamily


def nsm(derivatives: Derivatives, w2: Float[Array, ""], grad_w2: Float[Array, " p"]) -> Float[Array, ""]:
    """The weighted score-matching loss of one observation (the summand of L_NSM).

    w^2 |s|^2 + 2 (grad w^2)' s + 2 w^2 lap, with s the score and lap the Laplacian of log q(x | theta).
    """
    s, lap = derivatives
    return w2 * (s @ s) + 2 * (grad_w2 @ s) + 2 * w2 * lap


def nsm_of_many(derivatives: Derivatives, w2: Float[Array, " n"], grad_w2: Float[Array, "n p"]) -> Float[Array, " n"]:
    """`nsm` at many points; with few columns, sums over columns are written out, which XLA runs a quarter faster."""
    s, lap = derivatives
    if s.shape[1] > FEW_COLUMNS:
        return jax.vmap(nsm)(derivatives, w2, grad_w2)
    columns = range(s.shape[1])
    squares, along = sum(s[:, i] ** 2 for i in columns), sum(grad_w2[:, i] * s[:, i] for i in columns)
    return w2 * (squares + 2 * lap) + 2 * along


def score_matching(derivatives: Derivatives) -> Float[Array, ""]:
    """The unweighted loss |s|^2 + 2 lap of one simulation (the summand of J_m): `nsm` with w = 1."""
    s, lap = derivatives
    return nsm(derivatives, jnp.ones_like(lap), jnp.zeros_like(s))


def family_matching(
    family: ExponentialFamily, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]
) -> Float[Array, ""]:
    """The training loss of an exponential family: `score_matching` of one standardised simulation."""
    return score_matching(family.network_derivatives(t, z))


def noisy_family_matching(
    family: NoisyFamily, t: Float[Array, " d_theta"], noisy: Float[Array, " twice_d_x"]
) -> Float[Array, ""]:
    """The training loss of a noisy family, given x and its noise, in units of the noise: all levels count equally."""
    return score_matching(family.network_derivatives(t, *jnp.split(noisy, 2)))


class Quadratic(NamedTuple):
    """A loss theta' A theta + 2 theta' B + C; also a sum of such losses."""

    A: Float[Array | np.ndarray, "*n d_theta d_theta"]
    B: Float[Array | np.ndarray, "*n d_theta"]
    C: Float[Array | np.ndarray, "*n"]


def nsm_quadratic(family: FamilyDerivatives, w2: Float[Array, ""], grad_w2: Float[Array, " p"]) -> Quadratic:
    """The loss `nsm` of one observation as a function of theta, for the exponential family.

    A = w^2 dT dT',  B = w^2 dT db + div(w^2 dT),  C = w^2 |db|^2 + 2 div(w^2 db),
    where div(w^2 dT) = dT grad(w^2) + w^2 lap T. Both terms of B carry a plus (the paper's appendix; the statement of
    Proposition 1 in its main text has a minus).
    """
    dT, lap_T, db, lap_b = family
    return Quadratic(
        A=w2 * (dT @ dT.T),
        B=w2 * (dT @ db + lap_T) + dT @ grad_w2,
        C=w2 * (db @ db + 2 * lap_b) + 2 * (grad_w2 @ db),
    )
