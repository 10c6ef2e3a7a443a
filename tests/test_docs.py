"""The code in README and tutorials runs as printed, and no link or picture of the documentation is missing."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jaxtyping
import pytest

import nsmbayes as nsm
from nsmbayes.cli import main
from nsmbayes.experiments.paper import Printed

ROOT = Path(__file__).resolve().parents[1]
RUN = ("README.md", "docs/tutorial-gnk.md", "docs/your-own-simulator.md")
TOO_LONG = ("docs/tutorial-sir.md", "docs/tutorial-radio.md")
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def blocks(page):
    """The code of a page as (language, line number, code), in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(block[1], text[: block.start()].count("\n") + 2, block[2]) for block in _BLOCK.finditer(text)]


def anchors(path):
    """Where links into a page may point: its headings, as GitHub spells them."""
    headings = _HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def as_users_run_it():
    """Without the checks of shapes and types at run time that the tests switch on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("page", RUN)
def test_code_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The only thing that is not as printed: training stops after two epochs.
    monkeypatch.setitem(nsm.TrainingSettings.__init__.__kwdefaults__, "max_epochs", 2)
    monkeypatch.setattr(nsm.NSMBayesConj, "training", nsm.TrainingSettings(max_epochs=2))
    namespace = {"__name__": "page"}
    for language, line, code in blocks(page):
        if language == "python":
            exec(compile("\n" * (line - 1) + code, ROOT / page, "exec"), namespace)
        elif language == "sh":
            for command in filter(lambda text: text.startswith("nsmbayes "), code.splitlines()):
                assert main(shlex.split(command)[1:]) == 0, command


@pytest.mark.parametrize("page", PAGES)
def test_code_is_code(page):
    for language, line, code in blocks(page):
        if language == "python" and ">>>" not in code:
            compile("\n" * (line - 1) + code, ROOT / page, "exec")


@pytest.mark.parametrize("page", TOO_LONG)
def test_code_that_takes_minutes_parses_and_finds_what_it_imports(page):
    trees = [ast.parse(code) for language, _, code in blocks(page) if language == "python"]
    imports = [node for tree in trees for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    exec(compile(ast.Module(imports, type_ignores=[]), page, "exec"), {})


def test_pages_hold_code():
    for page in RUN:
        assert any(language == "python" for language, _, _ in blocks(page)), page


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_exist(page):
    path = ROOT / page
    for target in _LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = path.parent / name if name else path
        assert there.exists(), f"{page} points to {target}"
        assert not anchor or anchor in anchors(there), f"{page} points to {target}"


def test_pictures_are_small():
    assert all(picture.stat().st_size < 300_000 for picture in (ROOT / "docs" / "images").iterdir())


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_the_results_page_is_what_the_stored_rows_say():
    script = ROOT / "docs" / "make_results.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("make_results", ROOT / "docs" / "make_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def _rows(**changed):
    """Four repeats that score as `_PRINTED`, but for what is changed."""
    scores = {"mse": 4.0, "mmd2_ref": 0.5, "converged": True, "train_s": 1.0, "infer_s": 1.0, "hits": 2} | changed
    return [scores | {"covered": i < scores["hits"]} for i in range(4)]


_PRINTED = Printed((4.0, 1.0), (0.5, 0.125), 0.5, None, 1.0)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"mse": 6.0, "mmd2_ref": 0.25, "hits": 3}, []),
        ({"mse": 6.01}, ["MSE"]),
        ({"mse": 1.99}, ["MSE"]),
        ({"mmd2_ref": 0.76}, ["MMD²"]),
        ({"hits": 0}, ["coverage"]),
        ({"mse": 7.0, "mmd2_ref": 0.0, "hits": 4}, ["MSE", "MMD²", "coverage"]),
    ],
)
def test_the_results_page_knows_disagreement_with_the_paper(results, changed, found):
    assert results.disagreements(results.Line("ours", _rows(**changed)), _PRINTED) == found


def test_mmd_to_another_reference_is_not_compared(results):
    line = results.Line("ours", _rows(mmd2_ref=0.9), same_reference=False)
    assert results.disagreements(line, _PRINTED) == []


@pytest.mark.parametrize(("mse", "reason"), [(9.0, ""), (4.0, "no reason to give one")])
def test_the_results_page_gives_a_reason_for_every_disagreement_and_no_other(results, mse, reason):
    with pytest.raises(ValueError, match="disagrees in"):
        results.table([results.Group("NLE", [results.Line("ours", _rows(mse=mse), reason)], _PRINTED)])


def test_the_results_page_shows_and_numbers_a_disagreement(results):
    lines = [results.Line("ours", _rows()), results.Line("others", _rows(mse=9.0), "planted")]
    text = results.table([results.Group("NLE", lines, _PRINTED)])
    *rows, _, note = text.splitlines()
    assert [row.rstrip(" |")[-1:] == "1" for row in rows if "others" in row] == [True]
    assert note == "1. NLE, others (MSE): planted."
