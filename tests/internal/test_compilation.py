"""Compiled programs are kept on disk and found again by the next process; nothing that can happen to them is fatal."""

import json
import os
import subprocess
import sys

import pytest

from nsmbayes._internal import compilation, processor

_COUNTING = """
import collections, json, warnings
import jax, numpy as np
events = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: events.update([name.rpartition("/")[2]]))
from nsmbayes._internal.parallel import map_rows
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = map_rows(lambda row, scale: {"sum": (scale * row).sum(), "sorted": row.sort()}, np.ones((3, 2)), np.ones(2))
requests = events["compile_requests_use_cache"]
print(json.dumps([found["sum"].tolist(), requests, events["cache_hits"], [str(one.message) for one in caught]]))
"""


def _start(code, cache, **variables):
    """A process of its own with the cache in a folder: `_result` waits for it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {compilation.VARIABLE: str(cache)} | variables
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _result(process):
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return json.loads(out)


def test_the_next_process_compiles_nothing_and_damage_is_not_fatal(tmp_path):
    both = [_start(_COUNTING, tmp_path) for _ in range(2)]  # they write the same files at the same time
    for sums, requests, _, _ in map(_result, both):
        assert sums == [2.0] * 3
        assert requests > 0
    files = list(tmp_path.glob("*/*-cache"))
    assert files

    sums, requests, hits, caught = _result(_start(_COUNTING, tmp_path))
    assert (sums, hits, caught) == ([2.0] * 3, requests, [])

    for file in files:
        file.write_bytes(file.read_bytes()[:-20])
    sums, _, hits, caught = _result(_start(_COUNTING, tmp_path))
    assert (sums, hits) == ([2.0] * 3, 0)
    assert all("persistent compilation cache" in message for message in caught)


def test_what_the_user_chose_is_kept(tmp_path):
    """In one process: switched off, a folder that cannot be made, the user's own folder, and last the package's."""
    code = f"""
import json, os
import jax
from nsmbayes._internal import compilation, precision
def switch_on(value):
    os.environ[compilation.VARIABLE] = value
    on = compilation.keep_compiled_programs() is not None
    return [on, jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs]
file, new = {str(tmp_path / "file")!r}, {str(tmp_path / "new")!r}
open(file, "w").close()
results = [switch_on("off"), switch_on(file + "/below")]
jax.config.update("jax_compilation_cache_dir", "mine")
results += [switch_on(new)]
jax.config.update("jax_compilation_cache_dir", None)
jax.config.update("jax_enable_compilation_cache", False)
results += [switch_on(new)]
jax.config.update("jax_enable_compilation_cache", True)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 3.0)
results += [switch_on(new)]
print(json.dumps(results))
"""
    off, impossible, own, disabled, on = _result(_start(code, "off"))
    assert off == impossible == disabled == [False, None, 1.0]
    assert own == [False, "mine", 1.0]
    assert on == [True, str(next((tmp_path / "new").iterdir())), 3.0]
    assert processor.fingerprint() in on[1]


@pytest.mark.parametrize("value", ["off", "OFF", "0"])
def test_the_cache_is_switched_off(value, monkeypatch):
    monkeypatch.setenv(compilation.VARIABLE, value)
    assert compilation.cache_folder() is None


def test_the_folder_is_the_usual_one_of_the_system(monkeypatch, tmp_path):
    for name in (compilation.VARIABLE, "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = {"linux": ".cache", "darwin": "Library/Caches", "win32": "AppData/Local"}
    for system, folder in usual.items():
        monkeypatch.setattr(sys, "platform", system)
        assert compilation.cache_folder() == tmp_path / folder / "nsmbayes"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert compilation.cache_folder() == tmp_path / "xdg" / "nsmbayes"
    monkeypatch.setenv(compilation.VARIABLE, "~/here")
    assert compilation.cache_folder() == tmp_path / "here"


def test_old_and_empty_programs_are_removed(tmp_path):
    (tmp_path / "jax").mkdir()
    for age, (name, size) in enumerate({"new": 10, "empty": 0, "middle": 10, "old": 10}.items()):
        file = tmp_path / "jax" / f"{name}-cache"
        file.write_bytes(bytes(size))
        os.utime(file, (1e9 - age, 1e9 - age))
    (tmp_path / "jax" / "something-else").write_bytes(bytes(100))
    compilation.remove_oldest(tmp_path, largest=20)
    assert {path.name for path in tmp_path.rglob("*-*")} == {"new-cache", "middle-cache", "something-else"}
