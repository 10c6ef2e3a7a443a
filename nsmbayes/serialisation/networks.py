"""Networks as named arrays, and back; arrays that are read are compared with the shapes that the model must have."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes._internal.precision import double_precision, in_double
from nsmbayes.errors import InputError

Model = TypeVar("Model", bound=eqx.Module)

MOST_COLUMNS = 1000
"""Largest number of columns of x, and of parameters, of a saved model."""
_LARGEST = 1e100  # largest number in a network: products of larger numbers could overflow
_FOREIGN = "The model was not written by nsmbayes."


@double_precision
def model_arrays(model: eqx.Module) -> dict[str, np.ndarray]:
    """The arrays of a model, named by their path in the pytree."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {_name(place): np.asarray(leaf) for place, leaf in leaves}


@double_precision
def outline(build: Callable[[], Model]) -> Model:
    """The model that `build` would return, in double precision, with shapes instead of arrays; nothing is computed."""
    return eqx.filter_eval_shape(lambda: in_double(build()))


def outline_shapes(build: Callable[[], Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of the model that `build` would return, with the names from `model_arrays`."""
    leaves = jax.tree_util.tree_leaves_with_path(outline(build))
    return {_name(place): leaf.shape for place, leaf in leaves if _is_outlined(leaf)}


@double_precision
def fill_model(build: Callable[[], Model], arrays: Mapping[str, np.ndarray]) -> Model:
    """The model that `build` returns, filled with saved arrays from `model_arrays`.

    The arrays are first compared with the outline of the model, so that a file cannot make it allocate arrays of any
    size.
    """

    def saved(place: Any, leaf: Any) -> Any:
        if not _is_outlined(leaf) and not eqx.is_array(leaf):
            return leaf
        array = require_array(arrays, _name(place), leaf.shape)
        if array.dtype.kind != np.dtype(leaf.dtype).kind:
            raise InputError(
                f"The saved array {_name(place)!r} must hold {leaf.dtype}; found {array.dtype}. {_FOREIGN}"
            )
        if array.dtype.kind == "f" and array.size and float(np.abs(array).max()) > _LARGEST:
            raise InputError(f"The saved array {_name(place)!r} has values above {_LARGEST:g}. Train the model again.")
        return jnp.asarray(array, leaf.dtype)

    template = outline(build)
    filled = jax.tree_util.tree_map_with_path(saved, template)
    if all(_is_outlined(leaf) for leaf in jax.tree.leaves(template)):
        return filled
    # A flow has functions among its leaves, which contain arrays from its construction.
    return jax.tree_util.tree_map_with_path(saved, in_double(build()))


def require_array(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...] | None = None
) -> np.ndarray:
    """An array of a saved model; an `InputError` unless it is finite and has this shape; None means any valid size."""
    if name not in arrays:
        raise InputError(f"The saved model lacks the array {name!r}: it was not written by nsmbayes.")
    array = arrays[name]
    if shape is not None and not _fits(array.shape, shape):
        expected = str(shape).replace("None", f"1 to {MOST_COLUMNS}")
        raise InputError(f"The saved array {name!r} must have shape {expected}; found {array.shape}. {_FOREIGN}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"The saved array {name!r} has NaN or infinite values. Train the model again.")
    return array


def _fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(
        0 < f <= MOST_COLUMNS if s is None else f == s for f, s in zip(found, shape, strict=True)
    )


def _is_outlined(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _name(place: Any) -> str:
    return f"model{jax.tree_util.keystr(place)}"
