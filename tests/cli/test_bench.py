"""What `nsmbayes bench` prints and writes; that its measurements run is seen in `make test-bench`."""

import json

import pytest

from nsmbayes.cli import bench, main, speed


def _measured(device, **_):
    return {
        "device": device.platform,
        "kind": device.device_kind,
        "matrix_gflops": {"float32": 123.0, "float64": 45.0},
        "training": [{"d_x": 2, "us_per_simulation": 6.78, "compile_s": 9.1}],
        "posteriors": [{"what": "NLE", "seconds": 0.25, "compile_s": 8.2, "effective_draws_per_s": 1234.0}],
    }


def test_bench_prints_and_writes_what_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(speed, "on_device", _measured)
    monkeypatch.setattr(bench, "import_seconds", lambda: 1.5)
    file = tmp_path / "bench.json"
    assert main(["bench", "--quiet", "--json", str(file)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    written = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert written["chosen_device"] in [device["device"] for device in written["devices"]]
    assert {"cpu", "cores", "packages"} <= set(written["machine"])
    for text in (
        "1.50 s",
        "123 GFLOP/s in float32, 45 in float64",
        "6.78 us per simulation and epoch; compilation 9.1 s",
        "0.250 s, 1,234 effective draws per second; compilation 8.2 s",
    ):
        assert text in said.out


def test_the_first_call_is_timed_apart(monkeypatch):
    clock = iter([0, 10, 20, 23, 30, 32, 40, 44])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    calls = []
    assert speed.fastest(calls.append, repeats=3) == (10, 2)
    assert calls == [0, 1, 2, 3]
