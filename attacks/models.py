"""Hostile model folders: each is refused with a sentence, in a second and 100 MB, or loads as something that is whole.

The attacker knows the format and corrects every checksum, which is no signature. Seconds are those of the
processor: other work on the machine does not count.
"""

import copy
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import nsmbayes as nsm
from attacks.result import Result
from nsmbayes.errors import ConvergenceError
from nsmbayes.posteriors import AmortisedPosterior, Posterior
from nsmbayes.posteriors.schema import MAY_BE_UNKNOWN

DATA = Path(__file__).parents[1] / "tests" / "data"
_SECONDS, _MEGABYTES = 1.0, 100.0
_MOST_MEMORY = 12 << 30
_FORBIDDEN = ("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")
DIGITS = "5000 digits"  # stands for a number that json.dumps refuses to write
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3.5, 2**31, 2**62, -(2**62), 10**30, 1e308, 5e-324, float("nan"), float("inf"),
    "", "a", "mcd", "a" * 100_000, "\ud800", "\x1b[2J\x00", "../../../etc/passwd", "/dev/zero", "__class__", DIGITS,
    [], [[]], [None], ["a", "a"], [2**62], [1] * 20_000, [0.1] * 3, {}, {"kind": "mdn"}, {"kind": "imq", "zeta": -1},
    {"kind": "maf", "transforms": 10**6}, {"kind": "mdn", "hidden": [2**62]}, {"kind": []}, {"kind": "nuts"},
    {"kind": "plateau-imq", "radius": float("nan")}, {"": {"": {"": {}}}},
]  # fmt: skip


def run(count: int, seed: int, *, today: bool = True) -> Result:
    """Attack `count` times; without `today` only models that need no training."""
    result, rng, executed = Result(), random.Random(seed), []
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, limits[1]))  # one that gets through must not take all
    try:
        _attack(result, count, rng, executed, today)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    return result


def _attack(result: Result, count: int, rng: random.Random, executed: list[str], today: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folders = bases(Path(scratch), today=today)
        for folder in folders:
            nsm.load(folder)  # what is compiled once is not counted
        sys.addaudithook(lambda event, _: executed.append(event) if event in _FORBIDDEN else None)
        victim = Path(scratch) / "victim"
        for i in range(count):
            shutil.copytree(rng.choice(folders), victim)
            attack = rng.choice(ATTACKS)
            what = f"{i} {attack.__name__} {attack(victim, rng)}"
            executed.clear()
            one(result, what[:200], victim)
            if executed:
                result.fail(what[:200], f"it executed {executed[0]}")
            shutil.rmtree(victim)


def one(result: Result, what: str, folder: Path) -> None:
    """Load one folder, and judge what came of it."""
    memory, start = _peak(), time.process_time()
    try:
        loaded = nsm.load(folder)
    except nsm.InputError as error:
        seconds, grown = time.process_time() - start, _peak() - memory
        result.slowest_s, result.memory_mb = max(result.slowest_s, seconds), max(result.memory_mb, grown)
        if seconds > _SECONDS or grown > _MEGABYTES:
            result.fail(what, f"refused after {seconds:.1f} s and {grown:.0f} MB: {error}"[:300])
        elif len(str(error)) > 2000 or "\n" in str(error):
            result.fail(what, "refused at length")
        else:
            result.outcomes["refused"] += 1
    except Exception as error:
        result.fail(what, f"{type(error).__name__}: {error}"[:300])
    else:
        if (wrong := _wrong_with(loaded)) is not None:
            result.fail(what, f"loaded, but {wrong}"[:300])
        else:
            result.outcomes["loaded, whole"] += 1


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _wrong_with(loaded: Any) -> str | None:
    """None if what was loaded can be used: its numbers are finite, it can be saved again, and it answers."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            loaded.save(Path(scratch) / "again")
            arrays = load_arrays((Path(scratch) / "again" / "arrays.safetensors").read_bytes())
        except (nsm.InputError, OSError) as error:
            return f"it cannot be saved: {error}"
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name not in MAY_BE_UNKNOWN and not np.isfinite(array).all():
            return f"{name} is not finite"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            _use(loaded)
    except (nsm.InputError, ConvergenceError):  # a sentence, e.g. about a loss that is not finite
        return None
    except Exception as error:
        return f"not usable: {type(error).__name__}: {error}"
    return None


def _use(loaded: Any) -> None:
    """What a user would do next, where it is cheap: methods that sample, and statistics, are left alone."""
    if isinstance(loaded, nsm.NSMBayesConj):
        loaded = loaded.build_posterior(np.linspace(-1, 1, 20 * loaded.d_x).reshape(20, loaded.d_x) ** 3, beta=0.1)
    if isinstance(loaded, Posterior):
        assert loaded.summary(), "it says nothing"
        assert loaded.certificate.explain(), "it certifies nothing, without a word"
        assert isinstance(loaded.outliers(), list), "it names no outliers"
        assert loaded.sample((5,), seed=0).shape == (5, len(loaded.parameter_names))


def bases(folder: Path, *, today: bool = True) -> list[Path]:
    """Models, posteriors and statistics as they should be: of today's format, and of older ones."""
    old = DATA / "models-format-1"
    made = [nsm.load(old / name).save(folder / name) for name in ("conj", "nle", "nsm-bayes", "noisy-flow")]
    x = nsm.tasks.get("gnk").observe(30, seed=1).x
    made.append(nsm.load(old / "conj").build_posterior(x, beta=0.1).save(folder / "posterior"))
    made.append(nsm.load(old / "conj").build_posterior(x).save(folder / "calibrated"))
    made += _of_today(folder) if today else []
    return [*made, *(old / name for name in ("conj", "nle")), DATA / "models-format-2" / "nle-ensemble"]


def _of_today(folder: Path) -> list[Path]:
    """With what the oldest models cannot have: a prior by parameters, names of columns, held-out rows, statistics."""
    prior = nsm.IndependentPrior({"centre": dist.Normal(0.0, 2.0), "width": dist.HalfNormal(1.0)})
    rng = np.random.default_rng(0)
    theta = prior.sample(1000, seed=0)
    x = theta[:, :1] + theta[:, 1:] * rng.standard_normal((1000, 2))
    made, settings = [], nsm.TrainingSettings(max_epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # two epochs are few, and posteriors say so
        for kind in (nsm.NSMBayes, nsm.NSMBayesAmortised):
            method = kind(prior, x_names=("a", "b")).append_simulations(theta, x)
            method.train(0, settings=settings, progress=False)
            posterior = method.build_posterior(x[:20], beta=0.5, seed=0)
            made += [method.save(folder / f"{method.name}-method"), posterior.save(folder / f"{method.name}-posterior")]
            if isinstance(posterior, AmortisedPosterior):
                made.append(posterior.statistics.save(folder / "statistics"))
    return made


# --- attacks on the header ---


def entry_of_the_header(folder: Path, rng: random.Random) -> str:
    """Another value at some place, or none."""
    header = json.loads((folder / "model.json").read_text())
    places = [place for place in places_in(header) if place[0] not in ("sha256", "arrays_sha256")]
    place, value = rng.choice(places), rng.choice([*VALUES, "delete", "rename"])
    inner = header
    for key in place[:-1]:
        inner = inner[key]
    if value == "delete":
        del inner[place[-1]]
    elif value == "rename":
        inner["renamed" if isinstance(inner, dict) else 0] = inner[place[-1]]
    else:
        inner[place[-1]] = value
    sign(folder, header)
    return f"{place} {value!r}"


def types_of_the_header(folder: Path, rng: random.Random) -> str:
    """Something else in place of the whole header."""
    text = rng.choice(
        ["", "null", "[]", "{}", '"format"', "[" * 50_000, '{"format": 5}', '{"format": []}', "\x00", "{" * 9999, "NaN"]
    )
    (folder / "model.json").write_text(text)
    return text[:20]


def places_in(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a header, as keys from the outside in."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(*before, key), *places_in(value[key], (*before, key))]]


def sign(folder: Path, header: dict[str, Any]) -> None:
    """Write a header with the checksum that belongs to it."""
    header = copy.deepcopy(header)
    header.pop("sha256", None)
    text = json.dumps(header)
    header["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(header).replace(f'"{DIGITS}"', "7" * 5000))


# --- attacks on the arrays ---


def numbers(folder: Path, rng: random.Random) -> str:
    """NaN, infinity, zero, a huge or a negative number in one array."""
    arrays, value = _arrays(folder), rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-320])
    name = rng.choice([name for name, array in sorted(arrays.items()) if array.dtype.kind == "f"])
    arrays[name] = arrays[name].copy()
    if rng.random() < 0.5:
        arrays[name][...] = value
    elif arrays[name].size:
        arrays[name].flat[rng.randrange(arrays[name].size)] = value
    _write(folder, save_arrays(arrays))
    return f"{name} {value}"


def shapes(folder: Path, rng: random.Random) -> str:
    """One array lost, renamed, added, of another shape or type."""
    arrays = _arrays(folder)
    name, how = rng.choice(sorted(arrays)), rng.randrange(7)
    array = arrays[name]
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays["model.more" if rng.random() < 0.5 else "../escape"] = arrays.pop(name)
    elif how == 2:
        arrays["model.more"] = np.zeros(rng.choice([0, 1, 10**6]))
    elif how == 3:
        arrays[name] = array.reshape(-1)
    elif how == 4:
        arrays[name] = array[None]
    elif how == 5:
        arrays[name] = array.astype(rng.choice([np.float32, np.float16, np.int64, np.int8, np.bool_, np.uint64]))
    else:
        arrays[name] = np.resize(array, (rng.choice([0, 1, 7, 2000]), *array.shape[1:]))
    _write(folder, save_arrays({key: np.ascontiguousarray(value) for key, value in arrays.items()}))
    return f"{name} {how}"


def index(folder: Path, rng: random.Random) -> str:
    """Another index of the safetensors file: types, shapes and offsets that do not fit."""
    raw = _arrays_file(folder).read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8:end])
    name = rng.choice(sorted(key for key in entries if key != "__metadata__"))
    field = rng.choice(["dtype", "shape", "data_offsets", "name", "length"])
    value = rng.choice([*VALUES, "BF16", "F8_E4M3", "I128", [2**61, 8], [-1], [0, 2**63], [0, 0], [8, 0]])
    if field == "name":
        entries[str(value)[:1000]] = entries[name]
    elif field != "length":
        entries[name][field] = value
    text = json.dumps(entries).replace(f'"{DIGITS}"', "7" * 5000).encode()
    length = rng.choice([0, 2**20, 2**40, 2**63 - 1, 2**64 - 1]) if field == "length" else len(text)
    _write(folder, struct.pack("<Q", length) + text + raw[end:])
    return f"{field} {value!r}"


def _arrays_file(folder: Path) -> Path:
    return folder / "arrays.safetensors"


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    return dict(load_arrays(_arrays_file(folder).read_bytes()))


def _write(folder: Path, data: bytes) -> None:
    _arrays_file(folder).write_bytes(data)
    header = json.loads((folder / "model.json").read_text())
    sign(folder, header | {"arrays_sha256": hashlib.sha256(data).hexdigest()})


# --- attacks on the files ---


def bits(folder: Path, rng: random.Random) -> str:
    """Some flipped bits."""
    file = rng.choice([folder / "model.json", _arrays_file(folder)])
    raw = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 5])):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    file.write_bytes(raw)
    return file.name


def sizes(folder: Path, rng: random.Random) -> str:
    """Truncated, or with gigabytes of nothing at the end; the checksum is that of the beginning."""
    file, size = rng.choice([folder / "model.json", _arrays_file(folder)]), rng.choice([0, 1, 9, 100, 20 * 10**9])
    os.truncate(file, size)
    return f"{file.name} {size}"


def consistent_gigabytes(folder: Path, rng: random.Random) -> str:
    """A sparse file whose index asks for exactly what is there."""
    count = rng.choice([10**6, 10**8, 2 * 10**9])
    text = json.dumps({"draws": {"dtype": "F64", "shape": [count], "data_offsets": [0, 8 * count]}}).encode()
    with _arrays_file(folder).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 8 * count)
    return f"{count}"


def places(folder: Path, rng: random.Random) -> str:
    """A link to a device or to nothing, a pipe, a folder in place of a file."""
    file = rng.choice([folder / "model.json", _arrays_file(folder)])
    file.unlink()
    how = rng.choice(["/dev/zero", "/dev/stdin", "/etc/passwd", "/no/such/file", "pipe", "folder", "itself", "none"])
    if how == "pipe":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
    elif how != "none":
        file.symlink_to(file.name if how == "itself" else how)
    return f"{file.name} {how}"


ATTACKS: list[Callable[[Path, random.Random], str]] = [
    *[entry_of_the_header] * 8, types_of_the_header, *[numbers] * 4, *[shapes] * 4, *[index] * 4,
    bits, sizes, consistent_gigabytes, places,
]  # fmt: skip
