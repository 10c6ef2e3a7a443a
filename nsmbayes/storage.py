"""Trained methods on disk: a folder with `model.json` (what it is) and `arrays.safetensors` (its numbers). No pickle.

A folder is written beside its place and moved there whole, so that a reader never sees half of one.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision

Model = TypeVar("Model", bound=eqx.Module)

FORMAT = 1
_HEADER, _ARRAYS = "model.json", "arrays.safetensors"


def write_model(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray], *, overwrite: bool) -> Path:
    """Write a model folder at `path`.

    An existing one is replaced only with `overwrite`, and only if it holds a model and nothing else.
    """
    path = _as_path(path).absolute()
    if path.exists():
        if not overwrite:
            raise InputError(f"`path` {path} exists already. Choose another, or pass overwrite=True to replace it.")
        if not path.is_dir() or {*os.listdir(path)} - {".DS_Store"} != {_HEADER, _ARRAYS}:
            raise InputError(
                f"`path` {path} exists and is not a model folder, or holds more than a model: it is not overwritten. "
                "Choose another."
            )
    data = save_arrays({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    document = {"format": FORMAT, **header, "arrays_sha256": hashlib.sha256(data).hexdigest()}
    document |= {"sha256": _digest(document)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        fresh, old = Path(scratch) / "fresh", Path(scratch) / "old"
        fresh.mkdir()
        (fresh / _ARRAYS).write_bytes(data)
        (fresh / _HEADER).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        try:
            if path.exists():
                os.replace(path, old)
            os.replace(fresh, path)
        except BaseException:  # Ctrl-C as well: the scratch folder is about to be deleted, and the old model with it
            if old.exists() and not path.exists():
                old.rename(path)
            raise
    return path


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model folder; raise `InputError` for anything that is not one, whole and of a known format."""
    path = _as_path(path)
    if not (path / _HEADER).is_file() or not (path / _ARRAYS).is_file():
        raise InputError(f"`path` {path} is not a model folder: it must hold {_HEADER} and {_ARRAYS}.")
    try:
        header = json.loads((path / _HEADER).read_text(encoding="utf-8"))
        if header["format"] != FORMAT:
            raise InputError(
                f"`path` {path} has format {header['format']!r}; this version of nsmbayes reads format {FORMAT}. "
                "Train again, or install the version that wrote it."
            )
        whole = header.pop("sha256") == _digest(header)
        digest = header["arrays_sha256"]
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
        raise InputError(
            f"`path` {path}: {_HEADER} is damaged or was not written by nsmbayes. Save the model again."
        ) from error
    if not whole:
        raise InputError(f"`path` {path}: {_HEADER} was changed since it was saved. Save the model again.")
    data = (path / _ARRAYS).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(
            f"`path` {path}: {_ARRAYS} is truncated or was changed since it was saved. Save the model again."
        )
    try:
        return header, load_arrays(data)
    except SafetensorError as error:
        raise InputError(f"`path` {path}: {_ARRAYS} is not a safetensors file. Save the model again.") from error


def _digest(document: dict[str, Any]) -> str:
    """A checksum of what JSON keeps of `document`: a changed digit would otherwise go unseen into every posterior."""
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"`path` must be a path such as 'my-model'; got {path!r}.")
    return Path(path)


@double_precision
def model_arrays(model: eqx.Module) -> dict[str, np.ndarray]:
    """The arrays of a model by their place in it."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {f"model{jax.tree_util.keystr(place)}": np.asarray(leaf) for place, leaf in leaves}


@double_precision
def fill_model(template: Model, arrays: dict[str, np.ndarray]) -> Model:
    """`template` with its arrays replaced by those of `model_arrays`."""

    def saved(place: Any, leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        array = arrays[f"model{jax.tree_util.keystr(place)}"]
        if array.shape != leaf.shape:
            raise KeyError(f"an array of shape {leaf.shape} at {jax.tree_util.keystr(place)}, found {array.shape}")
        return jnp.asarray(array, leaf.dtype)

    return jax.tree_util.tree_map_with_path(saved, template)
