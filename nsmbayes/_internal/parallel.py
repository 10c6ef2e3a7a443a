"""Run compiled JAX functions on all cores: XLA uses little more than one core for a computation with small arrays."""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.processor import cores

_BLOCK = 128  # largest number of rows per call on a CPU
_WIDE_BLOCK = 256  # rows per call on a GPU, which evaluates all rows of a block at once
_AT_ONCE = 4  # items that `in_order` processes at once
_compiled: dict[Any, Any] = {}
_compiling = Lock()


def device() -> Any:
    """The device chosen by the user (`jax.default_device`), or JAX's default device."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return jax.devices()[0] if chosen is None else chosen


def on_processor() -> bool:
    """Whether computations run on the CPU, where rows are best processed one by one; a GPU is best with all at once."""
    return device().platform == "cpu"


def by_processor() -> AbstractContextManager[Any]:
    """A context in which computations run on the CPU even if there is a GPU, which is slower for small computations."""
    return nullcontext() if on_processor() else jax.default_device(jax.devices("cpu")[0])


def map_rows(function: Callable[..., Any], rows: np.ndarray, *shared: Any) -> Any:
    """`function(row, *shared)` for every row, in blocks that run on all cores. Memory does not grow with the rows.

    One compilation serves any number of rows. Pass the same `function` object in every call, since a new object is
    compiled again.
    """
    one_by_one, total = on_processor(), len(rows)
    size = _BLOCK if one_by_one else _WIDE_BLOCK
    several = -(-total // size)
    if one_by_one:
        several = min(total, cores() * -(-several // cores()))  # the same number for every core
    blocks = np.array_split(rows, several)
    padded = [np.pad(block, ((0, size - len(block)), (0, 0))) for block in blocks]
    run = _map if one_by_one else _map_at_once
    arguments = [(one, np.asarray(len(block))) for one, block in zip(padded, blocks, strict=True)]
    parts = call_each(run, arguments, function, shared)
    return jax.tree.map(
        lambda *leaves: np.concatenate([leaf[: len(block)] for leaf, block in zip(leaves, blocks, strict=True)]), *parts
    )


def clear_cache() -> None:
    """Drop all compiled functions of this module, like `jax.clear_caches` for those of JAX."""
    _compiled.clear()


def _map(rows, count, function, shared):
    def one(i, found):
        return jax.tree.map(lambda leaf, new: leaf.at[i].set(new), found, function(rows[i], *shared))

    shapes = jax.eval_shape(lambda row: function(row, *shared), rows[0])
    empty = jax.tree.map(lambda leaf: jnp.zeros((len(rows), *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, one, empty)


def _map_at_once(rows, count, function, shared):
    return jax.vmap(lambda row: function(row, *shared))(rows)


@double_precision
def call_each(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *shared: Any) -> list[Any]:
    """`function(*one, *shared)` for each tuple of arguments, all with the same shapes: compiled once, run in threads.

    Arrays in the arguments are traced; everything else is a compile-time constant. A second call with the same
    function, shapes and constants compiles nothing. Computations are in double precision; results are NumPy arrays.
    """
    on = device()
    own, common = [_split(one) for one in arguments], _split(shared)
    parts = (own[0], common)
    shapes = tuple((leaf.shape, str(leaf.dtype)) for part in parts for leaf in part.arrays)
    key = (function, *((part.is_array, part.constants, part.structure) for part in parts), shapes, on)
    with jax.default_device(on):
        placed = [part.arrays for part in own]
        if on.platform != "cpu":  # on a CPU, a program takes NumPy arrays directly, which is faster
            placed = _placed(placed, on)
        together = _placed([common.arrays], on)[0]
        if key not in _compiled:

            def call(arrays: list[Any], others: list[Any]) -> Any:
                return function(*own[0].joined(arrays), *common.joined(others))

            with _compiling:
                if key not in _compiled:  # no other thread has compiled it in the meantime
                    _compiled[key] = jax.jit(call).lower(placed[0], together).compile()
    run = double_precision(lambda arrays: jax.tree.map(np.asarray, _compiled[key](arrays, together)))
    if len(arguments) == 1:
        return [run(placed[0])]
    return list(_pool().map(run, placed))


def in_threads(function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """`list(map(function, *arguments))` on all cores, for functions that spend their time in NumPy."""
    return list(_pool().map(function, *arguments))


def in_order(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """`map(function, items)`, a few items at once: a GPU works on one of them while the CPU works on the others."""
    on, running = device(), deque[Future[Any]]()

    def run(item: Any) -> Any:
        with jax.default_device(on):  # a setting that JAX keeps for each thread
            return function(item)

    with ThreadPoolExecutor(_AT_ONCE, "nsmbayes-in-order") as threads:
        for item in items:
            if len(running) == _AT_ONCE:
                yield running.popleft().result()
            running.append(threads.submit(run, item))
        while running:
            yield running.popleft().result()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """A permanent thread pool: starting threads for every call would take longer than most calls."""
    return ThreadPoolExecutor(cores(), "nsmbayes")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child only has the thread that called fork


class _Split(NamedTuple):
    """A pytree split into its arrays and everything else, which becomes a compile-time constant."""

    arrays: list[Any]
    is_array: tuple[bool, ...]
    constants: tuple[Any, ...]
    structure: Any

    def joined(self, arrays: list[Any]) -> Any:
        """The pytree with other arrays."""
        some, rest = iter(arrays), iter(self.constants)
        leaves = [next(some) if traced else next(rest) for traced in self.is_array]
        return jax.tree.unflatten(self.structure, leaves)


def _split(tree: Any) -> _Split:
    leaves, structure = jax.tree.flatten(tree)
    is_array = tuple(isinstance(leaf, np.ndarray | jax.Array) for leaf in leaves)
    arrays = [leaf for leaf, traced in zip(leaves, is_array, strict=True) if traced]
    constants = tuple(leaf for leaf, traced in zip(leaves, is_array, strict=True) if not traced)
    return _Split(arrays, is_array, constants, structure)


def _placed(trees: list[Any], on: Any) -> list[Any]:
    """The pytrees with their arrays on a device; arrays that they share are moved once."""
    moved: dict[int, Any] = {}

    def place(leaf):
        if isinstance(leaf, jax.Array) and leaf.devices() == {on}:
            return leaf
        if id(leaf) not in moved:
            moved[id(leaf)] = jax.device_put(leaf, on)
        return moved[id(leaf)]

    return jax.tree.map(place, trees)
