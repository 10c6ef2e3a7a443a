"""Compiled JAX functions on all cores: XLA gives one computation hardly more than one core if its arrays are small."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsmbayes._precision import double_precision

_BLOCK = 64  # rows in one call
_compiled: dict[Any, Any] = {}


def map_rows(function: Callable[..., Any], rows: np.ndarray, *shared: Any) -> Any:
    """`function(row, *shared)` of every row, in blocks that run on all cores: memory does not grow with their number.

    `function` must be one object from call to call, lest it be compiled each time.
    """
    size = min(_BLOCK, len(rows))
    padding = np.tile(rows[-1:], (-len(rows) % size, 1))
    blocks = np.concatenate([rows, padding]).reshape(-1, size, rows.shape[1])
    parts = call_each(_map, [(function, block, shared) for block in blocks])
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(rows)], *parts)


def cores() -> int:
    """The cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forget() -> None:
    """Drop what has been compiled, as `jax.clear_caches` does for JAX's own functions."""
    _compiled.clear()


def _map(function, rows, shared):
    return jax.lax.map(lambda row: function(row, *shared), rows)


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
