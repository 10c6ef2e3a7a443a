"""The page for users of sbi runs as printed; the benchmarks beside sbi run, at sizes that say nothing."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("sbi")

from test_docs import ROOT, blocks

import nsmbayes as nsm

PAGE = "docs/coming-from-sbi.md"


# said by sbi of training that ends early, and here of observations that are outliers indeed
@pytest.mark.filterwarnings("ignore:Maximum number of epochs:UserWarning")
@pytest.mark.filterwarnings("ignore:.* lie outside the range of the simulations:UserWarning")
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for language, line, code in blocks(PAGE):
        if language == "python":
            exec(compile("\n" * (line - 1) + code, ROOT / PAGE, "exec"), namespace)
    assert namespace["draws"].shape == (500, 2)
    assert namespace["suspects"][:5].all()
    assert isinstance(namespace["method"], nsm.NSMBayes)


@pytest.mark.parametrize(("name", "count"), [("sbi", 9), ("held-out", 3)])
def test_the_benchmarks_run_and_write_valid_json(name, count, tmp_path):
    command = [sys.executable, "-W", "error", "-m", "bench", name, "--tiny", "--out", str(tmp_path)]
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # nothing is timed here: compile fast, run slowly
    done = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=pytest.fail)
    rows = {row["what"]: row for row in document["rows"]}
    assert len(rows) == count
    assert all(row["first_s"] > 0 and row["later_s"] > 0 for row in rows.values())
    for what, row in rows.items():
        theirs = what.startswith("sbi: ")
        if name == "sbi":
            assert ("times_faster_than_sbi_first" in row["detail"]) != theirs
        else:
            assert (row["detail"]["standard_error"] == 0) == theirs
