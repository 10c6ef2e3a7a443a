"""Every benchmark runs, at sizes that say nothing about speed, and writes what it promises."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import browser

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
NAMES = (
    "conj", "calibration", "columns", "parameters", "budget", "large", "observations", "batch", "mcd", "simulators",
    "amortised", "memory", "influence", "general", "identity", "surrogate", "campaigns", "devices",
    "throughput",
)  # fmt: skip
IN_BROWSER = pytest.param("explore", marks=pytest.mark.skipif(bool(browser.missing()), reason=browser.missing()))
APART = ("explore", "sbi", "held-out")  # the last two run where sbi is installed, see tests/interop


@pytest.mark.bench
@pytest.mark.parametrize("name", [*NAMES, IN_BROWSER])
def test_every_benchmark_runs_and_writes_valid_json(name, tmp_path):
    # A process of its own: benchmarks empty JAX's compilation caches, which other tests share.
    command = [sys.executable, "-W", "error", "-m", "bench", name, "--tiny", "--out", str(tmp_path)]
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # nothing is timed here: compile fast, run slowly
    done = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.stem for path in tmp_path.iterdir()] == [name]
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
    assert f"there are {', '.join((*NAMES, *APART))}" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_stored_results_are_of_the_full_sizes(path):
    document = json.loads(path.read_text())
    if path.stem == "baseline":
        assert all(value > 0 for value in document["ratios"].values())
        return
    assert document["name"] == path.stem.partition("@")[0]  # @ another machine than that of the others
    assert document["name"] in (*NAMES, *APART)
    sizes = [size for value in document["sizes"].values() for size in (value if isinstance(value, list) else [value])]
    assert max(size for size in sizes if isinstance(size, int)) >= 100


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("bench.check")


def _measured(*, slower=1.0, rate=100.0):
    """What `nsmbayes bench --json` might write on a machine `rate / 100` times as fast; NSM-Bayes can be slower."""
    faster = rate / 100
    row = {"compile_s": 10 / faster}
    posterior = {"seconds": 2 * slower / faster, "effective_draws_per_s": 500 * faster / slower, "what": "NSM-Bayes"}
    device = {
        "device": "cpu",
        "matrix_gflops": {"float32": 2 * rate, "float64": rate},
        "training": [row | {"d_x": 1, "us_per_simulation": 3 / faster}],
        "posteriors": [row | posterior],
    }
    return {
        "machine": {},
        "load_before": [0, 0, 0],
        "import_s": 2 / faster,
        "devices": [device | {"device": "gpu"}, device],
    }


def test_the_check_names_what_got_worse(check):
    baseline = check.ratios(_measured())
    assert check.losses(baseline, baseline) == []
    assert check.losses(check.ratios(_measured(slower=1.19)), baseline) == []
    assert check.losses(check.ratios(_measured(slower=0.5)), baseline) == []
    worse = check.losses(check.ratios(_measured(slower=1.3)), baseline)
    assert [line.split(": ")[0] for line in worse] == ["NSM-Bayes, posterior", "NSM-Bayes, thousand effective draws"]
    assert all("30% worse" in line for line in worse)
    assert check.losses({}, baseline) == [f"{name}: not measured" for name in baseline]


def test_the_check_does_not_mind_another_machine(check):
    assert check.losses(check.ratios(_measured(rate=20.0)), check.ratios(_measured())) == []


def test_the_check_exits_with_one_if_something_got_worse(check, tmp_path, capsys):
    before, now, baseline = (tmp_path / f"{name}.json" for name in ("before", "now", "baseline"))
    before.write_text(json.dumps(_measured()))
    now.write_text(json.dumps(_measured(slower=2.0)))
    where = ["--baseline", str(baseline)]
    assert check.main(["--store", "--from", str(before), *where]) == 0
    assert check.main(["--from", str(before), *where]) == 0
    assert "none of 6" in capsys.readouterr().out
    assert check.main(["--from", str(now), *where]) == 1
    assert "NSM-Bayes, posterior: 100% worse" in capsys.readouterr().out


def test_the_check_needs_a_baseline(check, tmp_path, capsys):
    """It says so before it measures for minutes."""
    with pytest.raises(SystemExit, match="2"):
        check.main(["--baseline", str(tmp_path / "baseline.json")])
    assert "there is no baseline baseline.json" in capsys.readouterr().err
