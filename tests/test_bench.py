"""Every benchmark runs, at sizes that say nothing about speed, and writes what it promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = (
    "conj", "calibration", "columns", "large", "batch", "mcd", "simulators", "memory", "influence", "general",
    "identity", "surrogate",
)  # fmt: skip
BESIDE_SBI = "sbi"  # runs where sbi is installed: see tests/interop


@pytest.mark.bench
def test_every_benchmark_runs_and_writes_valid_json(tmp_path):
    # A process of its own: benchmarks empty JAX's compilation caches, which other tests share.
    command = [sys.executable, "-W", "error", "-m", "bench", *NAMES, "--tiny", "--out", str(tmp_path)]
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # nothing is timed here: compile fast, run slowly
    done = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(NAMES)
    for name in NAMES:
        document = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=pytest.fail)
        assert document["name"] == name
        assert document["sizes"]
        assert {"date", "cpu", "cores", "python", "packages"} <= set(document["machine"])
        assert {"load_before", "load_after"} <= set(document)
        assert document["rows"]
        for row in document["rows"]:
            assert row["what"] in done.stdout
            assert row["first_s"] > 0
            assert row["later_s"] > 0


def test_an_unknown_benchmark_is_refused(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from bench.__main__ import main

    with pytest.raises(SystemExit) as stopped:
        main(["no-such"])
    assert stopped.value.code == 2
    assert f"there are {', '.join((*NAMES, BESIDE_SBI))}" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*NAMES, BESIDE_SBI])
def test_stored_results_are_of_the_full_sizes(name):
    document = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())
    assert document["name"] == name
    assert max(v for v in document["sizes"].values() if isinstance(v, int)) >= 100
