"""Factorisations of many small matrices at once, without LAPACK.

On a CPU, a batched LAPACK call inside a compiled loop can deadlock: XLA passes the matrices of a batch to its own
thread pool and waits for them on a thread of the same pool. With ten or more columns, training and bootstraps hung on
two cores. The loops here run over the columns of a matrix, and each step is vectorised over all matrices, so the
compiled program has the same size for every dimension.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def cholesky(S: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The lower factor L of S = L L'; not finite where S is not positive definite."""
    d = S.shape[-1]

    def step(j, L):
        # column j of S minus what the previous columns explain; entries above the diagonal are set to zero
        column = S[..., j] - jnp.einsum("...ik,...k->...i", L, L[..., j, :])
        column = column / jnp.sqrt(column[..., j, None])
        return L.at[..., j].set(jnp.where(jnp.arange(d) >= j, column, 0))

    return jax.lax.fori_loop(0, d, step, jnp.zeros_like(S))


def inverse_factor(S: Float[Array, "*batch d d"]) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch"]]:
    """W = L^-1 with S = L L', lower triangular, and log det S, by Gaussian elimination on S and the identity."""
    d = S.shape[-1]
    rows = jnp.arange(d)

    def step(j, carry):
        rest, inverse, pivots = carry
        pivot = rest[..., j, j]
        multiplier = jnp.where(rows > j, rest[..., j] / pivot[..., None], 0)
        rest = rest - multiplier[..., None] * rest[..., j, :][..., None, :]
        inverse = inverse - multiplier[..., None] * inverse[..., j, :][..., None, :]
        return rest, inverse, pivots.at[..., j].set(pivot)

    start = S, jnp.broadcast_to(jnp.eye(d, dtype=S.dtype), S.shape), jnp.ones_like(S[..., 0])
    _, inverse, pivots = jax.lax.fori_loop(0, d, step, start)
    return inverse / jnp.sqrt(pivots)[..., None], jnp.log(pivots).sum(axis=-1)


@jax.custom_jvp
def inverse_and_log_det(S: Float[Array, "*batch d d"]) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch"]]:
    """S^-1 and log det S of positive definite matrices; derivatives are products: d S^-1 = -S^-1 dS S^-1."""
    W, log_det = inverse_factor(S)
    return jnp.swapaxes(W, -1, -2) @ W, log_det


@inverse_and_log_det.defjvp
def _inverse_and_log_det_jvp(primals, tangents):
    (S,), (dS,) = primals, tangents
    P, log_det = inverse_and_log_det(S)
    return (P, log_det), (-P @ dS @ P, jnp.einsum("...ij,...ji->...", P, dS))


@jax.custom_jvp
def triangular_inverse(L: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The inverse of lower triangular matrices, row by row, with derivatives by products: d L^-1 = -L^-1 dL L^-1."""
    d = L.shape[-1]
    identity = jnp.eye(d, dtype=L.dtype)

    def step(i, inverse):
        # rows from i on are still zero, so the diagonal entry has no effect
        row = identity[i] - jnp.einsum("...k,...kj->...j", L[..., i, :], inverse)
        return inverse.at[..., i, :].set(row / L[..., i, i][..., None])

    return jax.lax.fori_loop(0, d, step, jnp.zeros_like(L))


@triangular_inverse.defjvp
def _triangular_inverse_jvp(primals, tangents):
    (L,), (dL,) = primals, tangents
    W = triangular_inverse(L)
    return W, -W @ jnp.tril(dL) @ W
