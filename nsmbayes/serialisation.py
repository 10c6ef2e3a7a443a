"""Trained methods on disk: a folder with `model.json` (what it is) and `arrays.safetensors` (its numbers). No pickle.

Options that are objects (weights, surrogates, calibrations, samplers) are frozen dataclasses with a `kind`, listed in
one registry; on disk they are dictionaries of their fields. A folder is written beside its place and moved there whole,
so that a reader never sees half of one. Folders of an older format are migrated, step by step, when they are read.
"""

import dataclasses
import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError

Model = TypeVar("Model", bound=eqx.Module)

FORMAT = 5
_HEADER, _ARRAYS = "model.json", "arrays.safetensors"

Config = TypeVar("Config")

REGISTRY: dict[str, type] = {}
"""Every class whose objects can be options of a saved method, by its `kind`."""


def registered(cls: type[Config]) -> type[Config]:
    """Put a class into the registry: a frozen dataclass with a `kind` of its own, whose fields are plain values.

    Example:
        >>> import dataclasses
        >>> from typing import ClassVar
        >>> @registered
        ... @dataclasses.dataclass(frozen=True)
        ... class Ruler:
        ...     kind: ClassVar[str] = "ruler"
        ...     length: float = 1.0
        >>> encode(Ruler(2.0)), decode({"kind": "ruler", "length": 3.0})
        ({'kind': 'ruler', 'length': 2.0}, Ruler(length=3.0))
        >>> del REGISTRY["ruler"]
    """
    kind = getattr(cls, "kind", None)
    if not isinstance(kind, str) or not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} must be a dataclass with a `kind` to be registered.")
    if REGISTRY.setdefault(kind, cls) is not cls and REGISTRY[kind].__qualname__ != cls.__qualname__:
        raise TypeError(f"The kind {kind!r} of {cls.__name__} is taken by {REGISTRY[kind].__name__}.")
    REGISTRY[kind] = cls
    return cls


def encode(value: Any) -> Any:
    """An option as JSON can hold it: plain values as they are, tuples as lists, objects as their fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [encode(entry) for entry in value]
    kind = getattr(value, "kind", None)
    if REGISTRY.get(kind or "") is not type(value):
        raise InputError(
            f"A {type(value).__name__} cannot be saved: it is not registered. Decorate its class with "
            "nsmbayes.serialisation.registered."
        )
    return {"kind": kind} | {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}


def decode(value: Any) -> Any:
    """The option that `encode` wrote down; fields that are left out keep their defaults."""
    if isinstance(value, list):
        return tuple(decode(entry) for entry in value)
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in REGISTRY:
        raise InputError(f"There is no kind {kind!r}; there are: {', '.join(sorted(REGISTRY))}.")
    fields = {name: decode(entry) for name, entry in value.items() if name != "kind"}
    check_fields(fields, REGISTRY[kind], f"a {kind!r}")
    return REGISTRY[kind](**fields)


def check_fields(fields: Mapping[str, Any], call: Callable[..., Any], what: str) -> None:
    """Refuse fields that `call` has no argument for."""
    known = tuple(inspect.signature(call).parameters)
    unknown = sorted(set(fields) - set(known))
    if unknown:
        expected = f"its fields are {', '.join(known)}" if known else "it has no fields"
        raise InputError(f"{what} has no field {unknown[0]!r}; {expected}.")


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
    data = save_arrays({name: np.asarray(a, order="C") for name, a in arrays.items()})
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
        if header["format"] != FORMAT and header["format"] not in MIGRATIONS:
            raise InputError(
                f"`path` {path} has format {header['format']!r}; this version of nsmbayes reads formats "
                f"{min(MIGRATIONS, default=FORMAT)} to {FORMAT}. Train again, or install the version that wrote it."
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
        arrays = load_arrays(data)
    except SafetensorError as error:
        raise InputError(f"`path` {path}: {_ARRAYS} is not a safetensors file. Save the model again.") from error
    while header["format"] != FORMAT:
        header, arrays = MIGRATIONS[header["format"]](header, arrays)
    return header, arrays


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
        array = require_array(arrays, f"model{jax.tree_util.keystr(place)}")
        if array.shape != leaf.shape:
            raise InputError(
                f"The saved array at {jax.tree_util.keystr(place)} must have shape {leaf.shape}; found {array.shape}. "
                "The model was not written by nsmbayes."
            )
        return jnp.asarray(array, leaf.dtype)

    return jax.tree_util.tree_map_with_path(saved, template)


def require_array(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """An array of a saved model; an error that says which one if it is not there."""
    if name not in arrays:
        raise InputError(f"The saved model lacks the array {name!r}: it was not written by nsmbayes.")
    return arrays[name]


Document = tuple[dict[str, Any], dict[str, np.ndarray]]


def _from_format_1(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 1 had options of the surrogate and the sampler beside the others, and other names for some."""
    kept = {name: header[name] for name in ("arrays_sha256",) if name in header}
    header = dict(header)
    config = dict(header["options"]) if "options" in header else header
    weight = dict(config.get("weight") or {})
    if "reach" in weight:
        weight["cutoff_radius"] = weight.pop("reach")
    names = ("parameter_names", "scatter", "scaling", "whiten")
    new = {name: config[name] for name in names if name in config}
    new |= {"grid_steps": config.get("lattice")}
    if weight:
        new |= {"weight": weight, "noise_levels": config.get("levels", [0.0])}
    if "calibration" in config:
        new["calibration"] = _calibration_1(config["calibration"])
    if header["method"] == "nsm-bayes-conj":
        new |= {name: config[name] for name in ("scale_theta", "hidden")}
        new["resolution"] = config.get("resolution", 0.0)
    else:
        noisy = tuple(config.get("levels", (0.0,))) != (0.0,)
        new["surrogate"] = _surrogate_1(config, paper=bool(header.get("gaussian_flow")), noisy=noisy)
        new["sampler"] = {"kind": config["sampler"], **{name: config[name] for name in ("chains", "warmup", "draws")}}
    renamed = {"x_range" if name == "seen" else name: array for name, array in arrays.items()}
    return {"format": 2, "method": header["method"], "config": new} | kept, renamed


def _calibration_1(calibration: dict[str, Any] | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    kinds = {"RootCalibration": "root", "StochasticCalibration": "stochastic"}
    return calibration | {"kind": kinds.get(calibration["kind"], calibration["kind"])}


def _surrogate_1(options: dict[str, Any], *, paper: bool, noisy: bool) -> dict[str, Any]:
    hidden = options["hidden"]
    if options["surrogate"] == "mdn":
        names = ("components", "floor", "ceiling", "ensemble")
        return {"kind": "mdn", "hidden": hidden, "factor": "covariance"} | {name: options[name] for name in names}
    found: dict[str, Any] = {"kind": "maf"} | ({} if hidden is None else {"hidden": hidden[0]})
    if not noisy:
        return found | {"squash": not paper, "allow_one_dimension": paper}
    found |= {"base_floor": options["floor"], "base_ceiling": options["ceiling"]}
    return found | ({} if hidden is None else {"base_hidden": hidden})


def _from_format_2(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 2 had the entries of precision factors component by component, diagonal and others in one triangle."""
    surrogate = header.get("config", {}).get("surrogate") or {}
    d = len(arrays.get("model.scale_x.centre", ()))
    factor = surrogate.get("factor") or ("precision" if d > 5 else "covariance")
    if surrogate.get("kind") == "mdn" and factor == "precision":
        K, below = surrogate["components"], d * (d - 1) // 2
        entries = np.arange(d + below)
        old = np.concatenate([entries[d:], entries[::-1]]).reshape(d, d)
        entries = np.arange(below)
        new = np.concatenate([entries[d - 1 :], entries[::-1]]).reshape(d - 1, d - 1)
        rows, columns = np.tril_indices(d, -1)
        lower = old[rows, columns][np.argsort(new[rows - 1, columns])]
        start = (d + below) * np.arange(K)[:, None]
        order = np.concatenate([(start + np.diagonal(old)).ravel(), (start + lower).ravel()]) + K + K * d
        order = np.concatenate([np.arange(K + K * d), order])
        last = f"model.layers[{len(surrogate.get('hidden') or (64, 64, 64))}]"
        moved = {name: arrays[name].take(order, axis=-1 - name.endswith(".weight")) for name in arrays if last in name}
        arrays = arrays | moved
    return header | {"format": 3}, arrays


def _from_format_3(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 3 knew weights by distance alone; a method that was saved with it goes on computing what it did."""
    if header.get("method") == "nsm-bayes":
        header = header | {"config": {"excess": None} | header["config"]}
    return header | {"format": 4}, arrays


def _from_format_4(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 4 did not know the names of the columns of x."""
    if "posterior" in header:
        return header | {"format": 5, "x_names": None}, arrays
    return header | {"format": 5, "config": {"x_names": None} | header["config"]}, arrays


MIGRATIONS: dict[int, Callable[[dict[str, Any], dict[str, np.ndarray]], Document]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
    4: _from_format_4,
}
"""From each older format to the next."""
