"""Run compiled JAX functions on all cores: XLA uses little more than one core for a computation with small arrays."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.processor import cores

_BLOCK = 64  # rows per call on a CPU
_WIDE_BLOCK = 256  # rows per call on a GPU, which evaluates all rows of a block at once
_compiled: dict[Any, Any] = {}


def device() -> Any:
    """The device that the user has chosen (`jax.default_device`), or JAX for him."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return jax.devices()[0] if chosen is None else chosen


def on_processor() -> bool:
    """Whether computations run on the processor, which prefers many rows one by one; a GPU wants them at once."""
    return device().platform == "cpu"


def map_rows(function: Callable[..., Any], rows: np.ndarray, *shared: Any) -> Any:
    """`function(row, *shared)` for every row, in blocks that run on all cores. Memory does not grow with the rows.

    One compilation serves any number of rows. Pass the same `function` object in every call: a new object is compiled
    again.
    """
    one_by_one = on_processor()
    size = _BLOCK if one_by_one else _WIDE_BLOCK
    padding = np.zeros((-len(rows) % size, rows.shape[1]), rows.dtype)
    blocks = np.concatenate([rows, padding]).reshape(-1, size, rows.shape[1])
    counts = np.minimum(len(rows) - size * np.arange(len(blocks)), size)
    parts = call_each(
        _map if one_by_one else _map_at_once,
        [(function, block, np.asarray(count), shared) for block, count in zip(blocks, counts, strict=True)],
    )
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(rows)], *parts)


def clear_cache() -> None:
    """Drop all compiled functions, as `jax.clear_caches` does for JAX's own."""
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
    """`function(*one)` for each tuple of arguments, all with the same shapes: compiled once, then run in threads.

    Arrays in the arguments are traced; everything else is a compile-time constant. A second call with the same
    function, shapes and constants compiles nothing. Computations are in double precision; results are NumPy arrays.
    """
    on = device()
    traced = [eqx.partition(one, lambda leaf: isinstance(leaf, np.ndarray | jax.Array)) for one in arguments]
    dynamic, static = traced[0]
    constants, structure = jax.tree.flatten(static)
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(dynamic))
    key = (function, tuple(constants), structure, shapes, on)
    with jax.default_device(on):
        placed = _placed([arrays for arrays, _ in traced], on)
        if key not in _compiled:
            _compiled[key] = jax.jit(lambda arrays: function(*eqx.combine(arrays, static))).lower(placed[0]).compile()
    run = double_precision(lambda arrays: jax.tree.map(np.asarray, _compiled[key](arrays)))
    if len(arguments) == 1:
        return [run(placed[0])]
    with ThreadPoolExecutor(min(len(arguments), cores())) as pool:
        return list(pool.map(run, placed))


def _placed(trees: list[Any], on: Any) -> list[Any]:
    """The trees with their arrays on a device; what they share is moved once."""
    moved: dict[int, Any] = {}

    def place(leaf):
        if id(leaf) not in moved:
            moved[id(leaf)] = jax.device_put(leaf, on)
        return moved[id(leaf)]

    return jax.tree.map(place, trees)
