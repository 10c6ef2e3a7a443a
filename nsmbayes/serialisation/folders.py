"""Models on disk: a folder with `model.json` (the header) and a safetensors file (the arrays). No pickle.

A new folder is written under a temporary name and then renamed. In an existing folder, the arrays are written to a new
file, and then the header, which names this file, is replaced. This is one atomic switch: readers see the old model
before it and the new model after it. The size and form of a file are checked before it is loaded into memory.
"""

import hashlib
import json
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from nsmbayes._internal.files import write_bytes, write_text
from nsmbayes.errors import InputError
from nsmbayes.serialisation.migrations import FORMAT, MIGRATIONS

_HEADER, _ARRAYS = "model.json", "arrays.safetensors"
_ARRAYS_NAME = re.compile(r"arrays(-[0-9a-f]{16})?\.safetensors")
_LEFT_BEHIND = re.compile(r"tmp\w{8}\.tmp|\.DS_Store")  # files left by a save that was killed, and by a file browser
_ABANDONED = 3600.0  # seconds after which a file that no header names is no longer part of another process's save
_ATTEMPTS = 100  # attempts to read a model that others keep overwriting
_DTYPES = {"F64": 8, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1}
_MOST_BYTES = {"header": 4 << 20, "index": 1 << 20, "network": 32 << 20, "posterior": 1 << 30}
_MOST_LEVELS = 20  # largest depth of nested lists and dictionaries

Shapes = dict[str, tuple[int, ...]]


def write_model(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray], *, overwrite: bool) -> Path:
    """Write a model folder at `path`.

    An existing folder is replaced only with `overwrite`, and only if it contains a model and nothing else.
    """
    path = _as_path(path).absolute()
    _check_place(path, overwrite)
    data = save_arrays({name: np.asarray(a, order="C") for name, a in arrays.items()})
    _check_size(len(data), _kind(header), "This model")
    document = {"format": FORMAT, **header, "arrays": _ARRAYS, "arrays_sha256": hashlib.sha256(data).hexdigest()}
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            (fresh / _ARRAYS).write_bytes(data)
            (fresh / _HEADER).write_text(_signed(document), encoding="utf-8")
            try:
                os.rename(fresh, path)
                return path
            except OSError:
                if not path.exists():
                    raise
        _check_place(path, overwrite)  # another process was faster
    _switch(path, document, data)
    return path


def _switch(path: Path, document: dict[str, Any], data: bytes) -> None:
    """Replace the model in the folder `path`.

    Every file of arrays has a unique name, so that no two processes write or delete the same file.
    """
    name = f"arrays-{secrets.token_hex(8)}.safetensors"
    obsolete = [_named_arrays(path), *_abandoned(path)]
    try:
        write_bytes(path / name, data)
        write_text(path / _HEADER, _signed(document | {"arrays": name}))
    except BaseException:
        (path / name).unlink(missing_ok=True)
        raise
    for file in obsolete:
        if file is not None:
            file.unlink(missing_ok=True)


def _named_arrays(path: Path) -> Path | None:
    """The file of arrays that the header names; None if the header cannot be read."""
    try:
        return path / _arrays_name(_read_header(path))
    except (InputError, OSError):
        return None


def _abandoned(path: Path) -> list[Path]:
    """Files of saves that were killed long ago."""
    named, now = _named_arrays(path), time.time()
    ours = [file for file in path.iterdir() if _ARRAYS_NAME.fullmatch(file.name) or file.suffix == ".tmp"]
    return [file for file in ours if file != named and now - _written(file, now) > _ABANDONED]


def _written(file: Path, now: float) -> float:
    """The time at which a file was written; `now` if another process has deleted it."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return now


def _check_place(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"`path` {path} exists already. Choose another, or pass overwrite=True to replace it.")
    found = {name for name in os.listdir(path) if not _LEFT_BEHIND.fullmatch(name)} if path.is_dir() else set()
    numbers = {name for name in found if _ARRAYS_NAME.fullmatch(name)}
    if not numbers or found - numbers != {_HEADER}:
        raise InputError(
            f"`path` {path} exists and is not a model folder, or holds more than a model: it is not overwritten. "
            "Choose another."
        )


def read_model(
    path: str | Path, check: Callable[[dict[str, Any], Shapes], None] | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header and arrays of a model folder; raise `InputError` unless it is complete and in a known format.

    `check` is called with the header and the shapes of the arrays before the arrays are read.
    """
    path = _as_path(path)
    for _ in range(_ATTEMPTS):
        header = _read_header(path)
        try:
            return _read_numbers(path, header, check)
        except (
            FileNotFoundError
        ) as error:  # another process has replaced the model in the meantime, or the file is lost
            if _read_header(path) == header:
                raise _no_model(path) from error
    raise InputError(f"`path` {path} is overwritten faster than it can be read. Try again.")


def _read_header(path: Path) -> dict[str, Any]:
    file = path / _HEADER
    if not file.is_file():
        raise _no_model(path)
    try:
        _check_size(file.stat().st_size, "header", f"`path` {path}: {_HEADER}")
        header = json.loads(file.read_text(encoding="utf-8"))
        if header["format"] != FORMAT and header["format"] not in MIGRATIONS:
            raise InputError(
                f"`path` {path} has format {header['format']!r:.20}; this version of nsmbayes reads formats "
                f"{min(MIGRATIONS, default=FORMAT)} to {FORMAT}. Train again, or install the version that wrote it."
            )
        whole = header.pop("sha256") == _digest(header)
        json.dumps(header, ensure_ascii=False).encode()  # fails for unpaired surrogates
        _check_depth(header)
        if not isinstance(header["arrays_sha256"], str):
            raise TypeError
        _arrays_name(header)
    except InputError:
        raise
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path) from error
    if not whole:
        raise InputError(f"`path` {path}: {_HEADER} was changed since it was saved. Save the model again.")
    return header


def _check_depth(value: Any, level: int = 0) -> None:
    if level > _MOST_LEVELS:
        raise ValueError
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(entry, level + 1)


def _read_numbers(
    path: Path, header: dict[str, Any], check: Callable[[dict[str, Any], Shapes], None] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    file = path / _arrays_name(header)
    try:
        mode = file.stat().st_mode  # a single call, since a writer may delete the file between two calls
    except PermissionError:
        raise
    except OSError as error:  # e.g. a link to itself
        raise FileNotFoundError(file) from error
    if not stat.S_ISREG(mode):
        raise _no_model(path)
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        _check_size(size, _kind(header), f"`path` {path}: {file.name}")
        shapes = _shapes(opened.read(8 + _MOST_BYTES["index"]), size)
        if check is not None and shapes is not None:
            check(header, shapes)
        opened.seek(0)
        data = opened.read()
    if hashlib.sha256(data).hexdigest() != header["arrays_sha256"]:
        raise InputError(
            f"`path` {path}: {file.name} is truncated or was changed since it was saved. Save the model again."
        )
    try:
        if shapes is None:
            raise ValueError
        arrays = load_arrays(data)
    except (SafetensorError, ValueError) as error:
        raise InputError(
            f"`path` {path}: {file.name} is not a safetensors file of numbers. Save the model again."
        ) from error
    try:
        while header["format"] != FORMAT:
            header, arrays = MIGRATIONS[header["format"]](header, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _damaged(path) from error
    return header, arrays


def _shapes(start: bytes, size: int) -> Shapes | None:
    """The shapes from the first bytes of a safetensors file of `size` bytes; None if it is not one of plain numbers."""
    try:
        length = int.from_bytes(start[:8], "little")
        if length > len(start) - 8:
            return None
        index = json.loads(start[8 : 8 + length])
        index.pop("__metadata__", None)
        shapes, stored = {}, 0
        for name, entry in index.items():
            low, high = entry["data_offsets"]
            shape, count = tuple(entry["shape"]), 1
            for extent in shape:
                if type(extent) is not int or not 0 <= extent <= size:
                    return None
                count *= extent
            if count * _DTYPES[entry["dtype"]] != high - low or len(shape) > 8:
                return None
            shapes[name], stored = shape, stored + high - low
        return shapes if stored == size - 8 - length else None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def _signed(document: dict[str, Any]) -> str:
    """The header as text, with its checksum."""
    text = json.dumps(document | {"sha256": _digest(document)}, indent=2) + "\n"
    _check_size(len(text), "header", "What is to be saved beside the arrays, with all names,")
    return text


def _digest(document: dict[str, Any]) -> str:
    """A checksum of `document` as JSON: without it, a changed digit would affect every posterior without notice.

    It detects damage. It is not a signature: anybody who changes a model on purpose can also change its checksum.
    """
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def _arrays_name(header: dict[str, Any]) -> str:
    name = header.get("arrays", _ARRAYS)
    if not isinstance(name, str) or not _ARRAYS_NAME.fullmatch(name):
        raise ValueError
    return name


def _kind(header: dict[str, Any]) -> str:
    return "posterior" if "posterior" in header else "network"


def _check_size(size: int, kind: str, what: str) -> None:
    if size > _MOST_BYTES[kind]:
        raise InputError(
            f"{what} has {size:,} bytes; at most {_MOST_BYTES[kind]:,} are saved and read. Keep what you need of it "
            "in a file of your own."
        )


def _no_model(path: Path) -> InputError:
    return InputError(f"`path` {path} is not a model folder: it must hold {_HEADER} and {_ARRAYS}.")


def _damaged(path: Path) -> InputError:
    return InputError(f"`path` {path}: {_HEADER} is damaged or was not written by nsmbayes. Save the model again.")


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"`path` must be a path such as 'my-model'; got {path!r}.")
    return Path(path)
