"""Pins, hashes and the list of what is installed agree; what is built holds what it should."""

import importlib.metadata
import json
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import dist, lock, sbom

ROOT = Path(__file__).parents[1]


def _pins(python: str) -> set[str]:
    """Those that hold for a version of Python."""
    lines = map(Requirement, (ROOT / "constraints.txt").read_text().splitlines())
    valid = (line for line in lines if line.marker is None or line.marker.evaluate({"python_version": python}))
    return {f"{line.name}{line.specifier}".lower().replace("_", "-") for line in valid}


def test_everything_that_is_installed_is_pinned():
    installed = {
        f"{each.name}=={each.version}".lower().replace("_", "-") for each in importlib.metadata.distributions()
    }
    ours = {name for name in installed if name.split("==")[0] not in ("nsmbayes", "pip", "setuptools")}
    assert ours <= _pins("{}.{}".format(*sys.version_info))


def test_the_oldest_python_that_was_tried_is_the_oldest_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tried = re.findall(r"^\| (3\.\d+)\.\d+ \|", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    declared = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    assert set(tried) == set(declared)
    assert project["requires-python"] == f">={declared[0]}"


def test_hashes_are_those_of_the_pins(monkeypatch):
    monkeypatch.chdir(ROOT)
    hashes = lock.read()
    (python,) = re.findall(r"^# CPython (\d+\.\d+),", (ROOT / "hashes.txt").read_text())
    assert set(hashes) <= _pins(python)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes.values())
    assert not re.search(r"://|index|/", (ROOT / "hashes.txt").read_text())


def test_a_line_of_the_lock_names_no_index():
    entry = {
        "metadata": {"name": "jax", "version": "1.2"},
        "download_info": {"url": "https://somewhere/jax", "archive_info": {"hashes": {"sha256": "ab"}}},
    }
    own = {"metadata": {"name": "nsmbayes", "version": "0"}, "download_info": {}}
    assert lock.lines({"install": [own, entry]}) == ["jax==1.2 --hash=sha256:ab"]


def test_the_bill_of_materials_lists_what_is_installed(monkeypatch):
    monkeypatch.chdir(ROOT)
    bill = json.loads(json.dumps(sbom.bill()))
    found = {each["name"]: each for each in bill["components"]}
    assert found["jax"]["version"] == importlib.metadata.version("jax")
    assert found["jax"]["purl"] == f"pkg:pypi/jax@{found['jax']['version']}"
    assert found["jax"]["hashes"][0]["alg"] == "SHA-256"
    assert bill["metadata"]["component"]["name"] == "nsmbayes"


def archives(folder, *, wheel=(), sdist=()):
    with zipfile.ZipFile(folder / "nsmbayes-0.1.0-py3-none-any.whl", "w") as made:
        for name in ("nsmbayes/__init__.py", "nsmbayes/py.typed", "nsmbayes-0.1.0.dist-info/entry_points.txt", *wheel):
            made.writestr(name, "")
    with tarfile.open(folder / "nsmbayes-0.1.0.tar.gz", "w:gz") as made:
        for name in (*dist.SDIST, *sdist):
            made.addfile(tarfile.TarInfo(f"nsmbayes-0.1.0/{name}/x"))


def test_a_wheel_with_the_package_alone_is_accepted(tmp_path, capsys):
    archives(tmp_path)
    assert dist.main(tmp_path) == 0
    assert "hold what they should" in capsys.readouterr().out


@pytest.mark.parametrize("stray", ["tests/test_x.py", "bench/x.py", "docs/index.md", "nsmbayes/data.csv"])
def test_a_wheel_with_more_is_refused(tmp_path, capsys, stray):
    archives(tmp_path, wheel=[stray])
    assert dist.main(tmp_path) == 1
    assert f"holds {stray}" in capsys.readouterr().out


def test_an_incomplete_build_is_refused(tmp_path, capsys, monkeypatch):
    assert dist.main(tmp_path) == 1
    archives(tmp_path)
    monkeypatch.setattr(dist, "SDIST", (*dist.SDIST, "hashes.txt"))
    assert dist.main(tmp_path) == 1
    assert "lacks hashes.txt" in capsys.readouterr().out
