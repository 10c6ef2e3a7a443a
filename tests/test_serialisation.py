"""What is saved comes back to the bit, what is damaged is refused, and a failed save harms nothing."""

import hashlib
import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_arrays
from support.reference import random_family

import nsmbayes as nsm
from nsmbayes import serialisation
from nsmbayes.errors import InputError
from nsmbayes.methods import METHODS
from nsmbayes.serialisation import decode, encode, read_model, registered, write_model

FAST = {"bootstraps": 20}
OPTIONS = {
    "defaults": {},
    "imq": {
        "weight": nsm.weights.IMQ(zeta=0.3),
        "scatter": "mad",
        "calibration": nsm.calibration.RootCalibration(**FAST, grid=5),
    },
    "plateau": {"weight": nsm.weights.PlateauIMQ(radius=1.7, zeta=1.3), "scaling": "robust-asinh"},
    "squared exponential": {
        "weight": nsm.weights.SquaredExponential(lengthscale=1 / 3),
        "whiten": False,
        "scatter": "sample",
    },
    "constant": {"weight": nsm.weights.Constant(), "scaling": "none", "scale_theta": False},
    "calibration": {
        "scaling": "zscore",
        "calibration": nsm.calibration.RootCalibration(
            **FAST, target=0.8, reference="minimiser", smallest=1e-3, largest=3.0, grid=7, ridge="condition"
        ),
    },
    "stochastic": {
        "calibration": nsm.calibration.StochasticCalibration(
            **FAST, initial_beta=1 / 3, steps=3, target=0.9, ridge="condition"
        )
    },
    "names": {"parameter_names": ("µ, \"mean\"", "</b>\n")},
}  # fmt: skip


def _observations(d_x, n=40):
    x = np.random.default_rng(1).standard_normal((n, d_x))
    x[:4] += 20.0
    return x


def _identical(a, b):
    """Two posteriors, and how their learning rates were chosen, compared to the bit."""
    for name in ("mean", "covariance", "weights", "x"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.beta == b.beta
    assert a.parameter_names == b.parameter_names
    if a.calibration is None:
        return
    assert np.array_equal(a.calibration.betas, b.calibration.betas)
    assert np.array_equal(a.calibration.coverages, b.calibration.coverages)
    assert a.calibration.describe() == b.calibration.describe()


def _settings(method):
    names = ("weight", "scatter", "scaling", "scale_theta", "whiten", "calibration", "hidden", "parameter_names")
    return {name: getattr(method, name) for name in names}


def _tree(folder: Path) -> dict[str, bytes]:
    """Everything on disk below `folder`."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"a folder"
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def saved(tmp_path, random_method):
    """A small model on disk, in a folder of its own, and the method it came from."""
    method = random_method(1, 2, calibration=nsm.calibration.RootCalibration(**FAST))
    return method.save(tmp_path / "shelf" / "model"), method


@pytest.mark.parametrize("name", OPTIONS)
def test_round_trip_to_the_bit(name, tmp_path, random_method):
    d_x = 2 if OPTIONS[name].get("scatter", "mcd") != "mcd" else 1  # in two dimensions MCD takes long to compile
    method = random_method(d_x, 2, **({"calibration": nsm.calibration.RootCalibration(**FAST)} | OPTIONS[name]))
    path = method.save(tmp_path / "model")
    assert path == tmp_path / "model"
    loaded = nsm.load(str(path))
    assert type(loaded) is type(method)
    assert _settings(loaded) == _settings(method)
    assert np.array_equal(loaded.prior.mean, method.prior.mean)
    assert np.array_equal(loaded.prior.covariance, method.prior.covariance)
    x, beta = _observations(d_x), None if "calibration" in OPTIONS[name] else 0.3
    _identical(loaded.build_posterior(x, beta=beta, seed=3), method.build_posterior(x, beta=beta, seed=3))


def test_round_trip_of_the_paper_preset(tmp_path):
    prior = nsm.GaussianPrior([0.1, -0.2], [[2.0, 0.3], [0.3, 1.0]])
    method = nsm.NSMBayesConj.paper(
        prior, hidden=16, calibration=nsm.calibration.StochasticCalibration(**FAST, initial_beta=0.2, steps=3)
    )
    method.adopt(random_family(1, 2))
    loaded = nsm.load(method.save(tmp_path / "model"))
    assert _settings(loaded) == _settings(method)
    x = _observations(1)
    _identical(loaded.build_posterior(x), method.build_posterior(x))


def test_round_trip_of_a_trained_method_and_of_its_copy(trained_gnk, tmp_path):
    """Trained weights are float32 inside float64: a copy of a copy is still the same."""
    first = nsm.load(trained_gnk.save(tmp_path / "first"))
    second = nsm.load(first.save(tmp_path / "second"))
    assert _tree(tmp_path / "first") == _tree(tmp_path / "second")
    x = nsm.tasks.get("gnk").observe(100, seed=1).x
    one, two = trained_gnk.build_posterior(x, beta=0.1), second.build_posterior(x, beta=0.1)
    assert np.array_equal(one.mean, two.mean)
    assert np.array_equal(one.covariance, two.covariance)


def test_an_untrained_method_cannot_be_saved(tmp_path):
    with pytest.raises(nsm.NotTrainedError, match="train"):
        nsm.NSMBayesConj(nsm.GaussianPrior([0.0], [1.0])).save(tmp_path / "model")
    assert _tree(tmp_path) == {}


def test_nothing_is_pickled(saved, monkeypatch):
    """The two files are read with nothing but JSON and raw bytes, and loading unpickles nothing."""
    path, method = saved
    assert sorted(os.listdir(path)) == ["arrays.safetensors", "model.json"]
    json.loads((path / "model.json").read_text())
    raw = (path / "arrays.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    index = json.loads(raw[8:start])
    index.pop("__metadata__", None)
    assert {entry["dtype"] for entry in index.values()} == {"F64"}
    assert sum(np.subtract(*entry["data_offsets"][::-1]) for entry in index.values()) == len(raw) - start
    low, high = index["model.T.W"]["data_offsets"]
    W = np.frombuffer(raw[start + low : start + high]).reshape(index["model.T.W"]["shape"])
    assert np.array_equal(W, method.family.T.W)

    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(np, "load", refuse)
    nsm.load(path)


def _sign(path: Path, **changes) -> None:
    """Change the header as someone who knows the format would; None removes a key."""
    header = json.loads((path / "model.json").read_text()) | changes
    header = {key: value for key, value in header.items() if value is not None and key != "sha256"}
    header["sha256"] = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    (path / "model.json").write_text(json.dumps(header))


def _sign_config(path: Path, **changes) -> None:
    """Likewise an option of the method."""
    config = json.loads((path / "model.json").read_text())["config"] | changes
    _sign(path, config={key: value for key, value in config.items() if value != "gone"})


def _write_arrays(path: Path, data: bytes) -> None:
    (path / "arrays.safetensors").write_bytes(data)
    _sign(path, arrays_sha256=hashlib.sha256(data).hexdigest())


def _change_array(path: Path, change, name="model.T.W") -> None:
    arrays = read_model(path)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        _write_arrays(path, save_arrays(arrays | {name: np.ascontiguousarray(change(arrays[name]))}))


def _lose_an_array(path: Path) -> None:
    arrays = read_model(path)[1]
    del arrays["model.b.V"]
    _write_arrays(path, save_arrays(arrays))


DAMAGE = {
    "arrays cut short": (lambda p: os.truncate(p / "arrays.safetensors", 300), "truncated"),
    "arrays empty": (lambda p: (p / "arrays.safetensors").write_bytes(b""), "truncated"),
    "arrays too long": (lambda p: os.truncate(p / "arrays.safetensors", 10_000), "truncated"),
    "arrays are not safetensors": (lambda p: _write_arrays(p, pickle.dumps({"model.T.W": 1})), "safetensors"),
    "arrays missing": (lambda p: (p / "arrays.safetensors").unlink(), "must hold"),
    "one array missing": (_lose_an_array, "model.b.V"),
    "header missing": (lambda p: (p / "model.json").unlink(), "must hold"),
    "header empty": (lambda p: (p / "model.json").write_text(""), "damaged"),
    "header cut short": (lambda p: os.truncate(p / "model.json", 100), "damaged"),
    "header is binary": (lambda p: (p / "model.json").write_bytes(b"\x80\xff\x00"), "damaged"),
    "header is bottomless": (lambda p: (p / "model.json").write_text("[" * 100_000), "damaged"),
    "foreign object": (lambda p: (p / "model.json").write_text('{"layers": [1, 2]}'), "damaged"),
    "foreign list": (lambda p: (p / "model.json").write_text("[1, 2]"), "damaged"),
    "foreign string": (lambda p: (p / "model.json").write_text('"format"'), "damaged"),
    "foreign null": (lambda p: (p / "model.json").write_text("null"), "damaged"),
    "unsigned": (lambda p: (p / "model.json").write_text('{"format": 1, "arrays_sha256": ""}'), "damaged"),
    "no checksum of the arrays": (lambda p: _sign(p, arrays_sha256=None), "damaged"),
    "header edited": (
        lambda p: (p / "model.json").write_text((p / "model.json").read_text().replace("0.95", "0.05")),
        "changed",
    ),
    "format of the future": (
        lambda p: _sign(p, format=11),
        "format 11; this version of nsmbayes reads formats 1 to 10",
    ),
    "format of the future, all else unknown": (
        lambda p: (p / "model.json").write_text('{"format": "3.1"}'),
        "format '3.1'",
    ),
    "unknown method": (lambda p: _sign(p, method="nsm-bayes-2"), "nsm-bayes-2"),
    "no method": (lambda p: _sign(p, method=None), "None"),
    "no options": (lambda p: _sign(p, config=None), "does not know"),
    "options are a list": (lambda p: _sign(p, config=[1]), "does not know"),
    "no weight": (lambda p: _sign_config(p, weight="gone"), "lacks the option 'weight'"),
    "no names": (lambda p: _sign_config(p, parameter_names="gone"), "lacks the option 'parameter_names'"),
    "no calibration": (lambda p: _sign_config(p, calibration="gone"), "lacks the option 'calibration'"),
    "too few names": (lambda p: _sign_config(p, parameter_names=["a"]), "`parameter_names`"),
    "names are a number": (lambda p: _sign_config(p, parameter_names=7), "`parameter_names`"),
    "unknown option": (lambda p: _sign_config(p, speed=7), "'speed' that this version does not know"),
    "unknown weight": (lambda p: _sign_config(p, weight={"kind": "huber"}), "huber"),
    "a sampler as a weight": (lambda p: _sign_config(p, weight={"kind": "nuts"}), "`weight`"),
    "a weight that is no object": (lambda p: _sign_config(p, weight=2.0), "`weight`"),
    "unknown scaling": (lambda p: _sign_config(p, scaling="log"), "`scaling`"),
    "unknown calibration": (lambda p: _sign_config(p, calibration={"kind": "Oracle"}), "Oracle"),
    "a calibration of another kind": (lambda p: _sign_config(p, calibration={"kind": "path"}), "`calibration`"),
    "NaN in a network": (lambda p: _change_array(p, lambda W: W * np.nan), "'model.T.W' has NaN or infinite values"),
    "infinity in a network": (lambda p: _change_array(p, lambda W: W / 0.0), "'model.T.W' has NaN or infinite values"),
    "integers in a network": (lambda p: _change_array(p, lambda W: W.astype(int)), "must hold float64; found int64"),
    "another shape": (lambda p: _change_array(p, lambda W: W[None]), "'model.T.W' must have shape"),
    "scales of zero": (lambda p: _change_array(p, lambda s: 0 * s, "model.scale_x.scale"), "must be above 1e-100"),
    "scales next to zero": (
        lambda p: _change_array(p, lambda s: 1e-320 * s, "model.scale_theta.scale"),
        "must be above 1e-100",
    ),
    "numbers that cannot be squared": (lambda p: _change_array(p, lambda W: 1e200 * W), "values above 1e+100"),
    "a prior that cannot be squared": (
        lambda p: _change_array(p, lambda mean: mean + 1e160, "prior.mean"),
        "Prior means must be at most 1e+100",
    ),
    "a prior without width": (
        lambda p: _change_array(p, lambda c: 1e-320 * np.eye(len(c)), "prior.covariance"),
        "standard deviations between 1e-100 and",
    ),
    "noise as wide as the world": (lambda p: _sign_config(p, noise_levels=[1e308]), "`noise_levels` are in robust"),
    "a resolution of next to nothing": (lambda p: _sign_config(p, resolution=5e-324), "`resolution` must be 0, or"),
    "a network as large as the world": (lambda p: _sign_config(p, hidden=2**62), "at most 1,000,000 is read"),
    "a large network that is not there": (lambda p: _sign_config(p, hidden=10**6), "must have shape"),
    "numbers in half precision": (
        lambda p: _write_arrays(p, (p / "arrays.safetensors").read_bytes().replace(b'"F64"', b'"F16"')),
        "not a safetensors file of numbers",
    ),
    "a method that is a list": (lambda p: _sign(p, method=[]), "a method [] that"),
    "half a character": (lambda p: _sign_config(p, parameter_names=["a", "\ud800"]), "damaged"),
    "5,000 digits": (lambda p: (p / "model.json").write_text('{"format": ' + "7" * 5000 + "}"), "damaged"),
    "too many numbers": (lambda p: os.truncate(p / "arrays.safetensors", 40 * 10**6), "at most 33,554,432"),
    "too long a header": (lambda p: os.truncate(p / "model.json", 5 * 10**6), "at most 4,194,304"),
    "a pipe": (lambda p: [(p / "model.json").unlink(), os.mkfifo(p / "model.json")], "must hold"),
    "a way out of the folder": (lambda p: _sign(p, arrays="../arrays.safetensors"), "damaged"),
    "names for other columns": (lambda p: _sign_config(p, x_names=["a", "b"]), "one entry per column of x"),
    "unknown option of the calibration": (
        lambda p: _sign_config(p, calibration={"kind": "root", "speed": 2}),
        "speed",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(name, saved):
    path, _ = saved
    damage, complaint = DAMAGE[name]
    damage(path)
    before = _tree(path)
    with pytest.raises(InputError) as caught:
        nsm.load(path)
    assert complaint in str(caught.value)
    assert _tree(path) == before


def test_a_method_that_this_version_lacks(saved, monkeypatch):
    path, _ = saved
    monkeypatch.delitem(METHODS, "nsm-bayes-conj")
    with pytest.raises(InputError, match=r"`path`.*'nsm-bayes-conj' that this version does not know"):
        nsm.load(path)


def test_no_flipped_bit_goes_unseen(saved):
    """Every byte of the header, and a sample of those of the arrays: refused, or only a space that means nothing."""
    path, _ = saved
    header, _ = read_model(path)

    def is_refused(file, good, i, bit):
        (path / file).write_bytes(good[:i] + bytes([good[i] ^ 1 << bit]) + good[i + 1 :])
        try:
            return read_model(path)[0] != header and None  # read, but not as it was written: the one thing forbidden
        except InputError:
            return True

    for file, step in (("model.json", 1), ("arrays.safetensors", 37)):
        good = (path / file).read_bytes()
        results = [is_refused(file, good, i, i % 7) for i in range(0, len(good), step)]
        assert None not in results
        assert sum(results) == len(results) if file == "arrays.safetensors" else sum(results) > 0.7 * len(results)
        (path / file).write_bytes(good)
    assert read_model(path)[0] == header


@pytest.mark.parametrize("path", [None, 3, b"bytes", ["list"]])
def test_a_path_that_is_none(path, saved):
    with pytest.raises(InputError, match="`path`"):
        nsm.load(path)
    with pytest.raises(InputError, match="`path`"):
        saved[1].save(path)


def _file(place: Path):
    place.write_text("precious")


def _folder(place: Path):
    place.mkdir()
    (place / "thesis.tex").write_text("precious")


def _foreign_model(place: Path):
    place.mkdir()
    (place / "model.json").write_text('{"learner": {}}')  # as XGBoost, say, would write it


def _model_and_more(place: Path):
    write_model(place, {"method": "nsm-bayes-conj"}, {}, overwrite=False)
    (place / "notes.txt").write_text("precious")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("occupant", [_file, _folder, _foreign_model, _model_and_more, Path.mkdir])
def test_what_is_not_a_model_is_never_overwritten(occupant, overwrite, saved, tmp_path):
    place = tmp_path / "shelf" / "place"
    occupant(place)
    before = _tree(tmp_path)
    with pytest.raises(InputError, match=r"`path`.*(exists already|not overwritten).*Choose another"):
        saved[1].save(place, overwrite=overwrite)
    assert _tree(tmp_path) == before
    if occupant is not _model_and_more:
        with pytest.raises(InputError, match="`path`"):
            nsm.load(place)


def test_a_model_is_overwritten_only_if_asked(saved, random_method):
    path, _ = saved
    other = random_method(1, 2, seed=5)
    before = _tree(path.parent)
    with pytest.raises(InputError, match=r"`path`.*overwrite=True"):
        other.save(path)
    assert _tree(path.parent) == before
    for _ in range(2):
        other.save(path, overwrite=True)
        assert len(os.listdir(path.parent)) == 1
        assert len(os.listdir(path)) == 2  # the old numbers are gone
    assert np.array_equal(nsm.load(path).family.T.W, other.family.T.W)


def _fail(monkeypatch, target, name, error, *, on_call=1):
    """Let the `on_call`-th call of target.name raise, after or instead of its work."""
    original, calls = getattr(target, name), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == on_call:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(target, name, failing)
    return calls


CRASHES = {
    "arrays not written": (os, "fdopen", 1),
    "arrays not moved": (os, "replace", 1),
    "header not written": (os, "fdopen", 2),
    "header not moved": (os, "replace", 2),
}
FRESH_CRASHES = {
    "arrays not written": (Path, "write_bytes", 1),
    "header not written": (Path, "write_text", 1),
    "folder not moved": (os, "rename", 1),
}


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_while_saving_leaves_the_old_model(crash, error, saved, random_method, monkeypatch):
    path, method = saved
    before = _tree(path.parent)
    target, name, on_call = CRASHES[crash]
    with monkeypatch.context() as patch:
        calls = _fail(patch, target, name, error, on_call=on_call)
        with pytest.raises(type(error)):
            random_method(1, 2, seed=5).save(path, overwrite=True)
    assert len(calls) >= on_call
    assert _tree(path.parent) == before
    assert np.array_equal(nsm.load(path).family.T.W, method.family.T.W)


@pytest.mark.parametrize("crash", FRESH_CRASHES)
def test_a_crash_while_saving_anew_leaves_nothing(crash, tmp_path, random_method, monkeypatch):
    target, name, on_call = FRESH_CRASHES[crash]
    with monkeypatch.context() as patch:
        _fail(patch, target, name, OSError("disk full"), on_call=on_call)
        with pytest.raises(OSError, match="disk full"):
            random_method(1, 2).save(tmp_path / "model")
    assert _tree(tmp_path) == {}


@pytest.mark.parametrize("kind", sorted(serialisation.REGISTRY))
def test_every_registered_option_comes_back(kind):
    """With its defaults, through JSON."""
    value = serialisation.REGISTRY[kind]()
    assert decode(json.loads(json.dumps(encode(value)))) == value


def test_what_is_not_registered_is_named():
    class Own(nsm.weights.IMQ):
        pass

    with pytest.raises(InputError, match="Own cannot be saved"):
        encode(Own())
    with pytest.raises(TypeError, match="`kind`"):
        registered(object)
    with pytest.raises(TypeError, match="taken by IMQ"):
        registered(type("Other", (nsm.weights.Constant,), {"kind": "imq"}))


def test_a_programming_error_is_not_called_a_foreign_file(saved, monkeypatch):
    def broken(self, arrays):
        raise KeyError("a bug")

    monkeypatch.setattr(nsm.NSMBayesConj, "_restore", broken)
    with pytest.raises(KeyError, match="a bug"):
        nsm.load(saved[0])


def test_readers_never_see_a_gap(tmp_path):
    """Two threads overwrite a model all the time, and every reader gets one of the two, whole."""
    contents = [np.full(2000, float(i)) for i in range(2)]
    path = write_model(tmp_path / "model", {"method": "0"}, {"a": contents[0]}, overwrite=False)
    stop = threading.Event()

    def overwrite(i):
        while not stop.is_set():
            write_model(path, {"method": str(i)}, {"a": contents[i]}, overwrite=True)

    writers = [threading.Thread(target=overwrite, args=(i,)) for i in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(100):
            header, arrays = read_model(path)
            assert (arrays["a"] == float(header["method"])).all()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
