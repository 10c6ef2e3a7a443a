"""The code in README and tutorials runs as printed, and no link or picture of the documentation is missing."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jaxtyping
import pytest

import nsmbayes as nsm
from nsmbayes.cli import main

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
    pictures = list((ROOT / "docs" / "images").rglob("*.png"))
    assert pictures
    assert all(picture.stat().st_size < 300_000 for picture in pictures)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_the_results_page_is_what_the_stored_rows_say():
    script = ROOT / "docs" / "make_results.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0
