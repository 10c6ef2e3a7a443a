"""Trained methods on disk: a folder with `model.json` (what it is) and `arrays.safetensors` (its numbers). No pickle.

A folder is written beside its place and moved there whole, so that a reader never sees half of one.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from nsmbayes._checks import InputError

FORMAT = 1
_HEADER, _ARRAYS = "model.json", "arrays.safetensors"


def write_model(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray], *, overwrite: bool) -> Path:
    """Write a model folder at `path`. An existing one is replaced only with `overwrite`, and only if it is a model."""
    path = Path(path).absolute()
    if path.exists():
        if not overwrite:
            raise InputError(f"`path` {path} exists already. Choose another, or pass overwrite=True to replace it.")
        if not (path / _HEADER).is_file():
            raise InputError(f"`path` {path} exists and is not a model folder: it is not overwritten.")
    data = save_arrays({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    document = {"format": FORMAT, **header, "arrays_sha256": hashlib.sha256(data).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        fresh, old = Path(scratch) / "fresh", Path(scratch) / "old"
        fresh.mkdir()
        (fresh / _ARRAYS).write_bytes(data)
        (fresh / _HEADER).write_text(json.dumps(document, indent=2) + "\n")
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(fresh, path)
        except OSError:
            if old.exists():
                shutil.move(old, path)
            raise
    return path


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model folder; raise `InputError` for anything that is not one, whole and of a known format."""
    path = Path(path)
    if not (path / _HEADER).is_file() or not (path / _ARRAYS).is_file():
        raise InputError(f"`path` {path} is not a model folder: it must hold {_HEADER} and {_ARRAYS}.")
    try:
        header = json.loads((path / _HEADER).read_text())
        known = header["format"] == FORMAT
        digest = header["arrays_sha256"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"`path` {path}: {_HEADER} is damaged or was not written by nsmbayes.") from error
    if not known:
        raise InputError(
            f"`path` {path} has format {header['format']}; this version of nsmbayes reads format {FORMAT}. Train "
            "again, or install the version that wrote it."
        )
    data = (path / _ARRAYS).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"`path` {path}: {_ARRAYS} is truncated or was changed since it was saved. Save it again.")
    try:
        return header, load_arrays(data)
    except SafetensorError as error:
        raise InputError(f"`path` {path}: {_ARRAYS} is not a safetensors file.") from error
