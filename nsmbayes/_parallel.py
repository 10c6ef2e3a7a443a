"""Compiled JAX functions on all cores: XLA gives one computation hardly more than one core if its arrays are small."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes._precision import double_precision

_BLOCK = 64  # rows in one call
_WIDE_BLOCK = 256  # likewise on a GPU, which takes the rows of a block at once
_compiled: dict[Any, Any] = {}


def map_rows(function: Callable[..., Any], rows: np.ndarray, *shared: Any) -> Any:
    """`function(row, *shared)` of every row, in blocks that run on all cores: memory does not grow with their number.

    Any number of rows is compiled once. `function` must be one object from call to call, lest it be compiled each time.
    """
    one_by_one = jax.default_backend() == "cpu"
    size = _BLOCK if one_by_one else _WIDE_BLOCK
    padding = np.zeros((-len(rows) % size, rows.shape[1]), rows.dtype)
    blocks = np.concatenate([rows, padding]).reshape(-1, size, rows.shape[1])
    counts = np.minimum(len(rows) - size * np.arange(len(blocks)), size)
    parts = call_each(
        _map if one_by_one else _map_at_once,
        [(function, block, np.asarray(count), shared) for block, count in zip(blocks, counts, strict=True)],
    )
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(rows)], *parts)


def cores() -> int:
    """The cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forget() -> None:
    """Drop what has been compiled, as `jax.clear_caches` does for JAX's own functions."""
    _compiled.clear()


def _map(function, rows, count, shared):
    def one(i, found):
        return jax.tree.map(lambda leaf, new: leaf.at[i].set(new), found, function(rows[i], *shared))

    shapes = jax.eval_shape(lambda row: function(row, *shared), rows[0])
    empty = jax.tree.map(lambda leaf: jnp.zeros((len(rows), *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, one, empty)


def _map_at_once(function, rows, count, shared):
    return jax.vmap(lambda row: function(row, *shared))(rows)


@double_precision
def call_each(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """`function(*one)` for each of the arguments, all of the same shapes: compiled once, then run in threads.

    Arrays in the arguments are traced, everything else is compiled in. A second call with the same function, shapes
    and constants compiles nothing. Everything is computed in double precision; results are NumPy arrays.
    """
    traced = [eqx.partition(one, lambda leaf: isinstance(leaf, np.ndarray | jax.Array)) for one in arguments]
    dynamic, static = traced[0]
    constants, structure = jax.tree.flatten(static)
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(dynamic))
    key = (function, tuple(constants), structure, shapes)
    if key not in _compiled:
        _compiled[key] = jax.jit(lambda arrays: function(*eqx.combine(arrays, static))).lower(dynamic).compile()
    run = double_precision(lambda arrays: jax.tree.map(np.asarray, _compiled[key](arrays)))
    if len(arguments) == 1:
        return [run(dynamic)]
    with ThreadPoolExecutor(min(len(arguments), cores())) as pool:
        return list(pool.map(run, [arrays for arrays, _ in traced]))
