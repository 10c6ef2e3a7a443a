"""The code in README and tutorials runs as printed, and no link or figure of the documentation is missing."""

import ast
import datetime
import importlib
import json
import re
import shlex
import subprocess
import sys

import jaxtyping
import pytest
from matplotlib.figure import Figure
from support.docs_scripts import ROOT, docs_script
from support.effort import little_effort
from support.synthetic import synthetic_result

from nsmbayes.cli import main
from nsmbayes.experiments import catalogue
from tools import run_docs

RUN = (
    "README.md",
    "docs/quickstart.md",
    "docs/tutorial-gnk.md",
    "docs/your-own-simulator.md",
    "docs/campaigns.md",
    "docs/amortised.md",
    "docs/calibration-map.md",
    "docs/verdict.md",
    "docs/trust.md",
)
TRAINS_NOTHING = ("docs/concepts.md", "docs/excess.md", "docs/surrogates.md", "docs/reproducing.md")
BESIDE_SBI = ("docs/coming-from-sbi.md",)  # tests/interop runs it
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

ELSEWHERE = ("LocalCluster", "SLURMCluster", "KubeCluster")  # blocks that need a cluster, or take long
_TRAIN = ".train(seed=0"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\b(?:nsm|nsmbayes)\.([A-Za-z_][\w.]*\w)")
_FILE = re.compile(r"`(nsmbayes/[\w/]+(?:\.py)?)`")
_LINK = re.compile(r"\[[^]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def blocks(page):
    """The code blocks of a page as (language, line number, code), in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(block[1], text[: block.start()].count("\n") + 2, block[3]) for block in _BLOCK.finditer(text)]


def files(page):
    """The code blocks of a page that are files, by their names."""
    return {block[2]: block[3] for block in _BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")) if block[2]}


def anchors(path):
    """The anchors of a page: its headings, as GitHub spells them."""
    headings = _HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def as_users_run_it():
    """Without the run-time checks of shapes and types that the tests enable."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# what the quickstart is about, and says
@pytest.mark.filterwarnings("ignore:3 of 40 observations lie outside the range of the simulations:UserWarning")
@pytest.mark.usefixtures("optimised", "as_users_run_it")
@pytest.mark.parametrize("page", ["README.md", *(pytest.param(page, marks=pytest.mark.slow) for page in RUN[1:])])
def test_code_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in files(page).items():
        (tmp_path / name).write_text(text)
    namespace, trained = {"__name__": "page"}, 0
    for language, line, code in blocks(page):
        if language == "python" and not any(name in code for name in ELSEWHERE):
            trained += code.count(_TRAIN)
            # The only thing that is not as printed: training stops after two epochs.
            code = code.replace(_TRAIN, f"{_TRAIN}, settings=nsm.TrainingSettings(max_epochs=2)")
            exec(compile("\n" * (line - 1) + code, ROOT / page, "exec"), namespace)
        elif language == "sh":
            for command in filter(lambda text: text.startswith("nsmbayes "), code.splitlines()):
                assert main(shlex.split(command)[1:], effort=little_effort()) == 0, command
    assert trained, "the page trains nothing that this test can shorten"


@pytest.mark.parametrize("page", TRAINS_NOTHING)
def test_code_that_trains_nothing_runs(page):
    namespace = {"__name__": "page"}
    for language, line, code in blocks(page):
        if language == "python":
            exec(compile("\n" * (line - 1) + code, ROOT / page, "exec"), namespace)
    assert len(namespace) > 2


def test_every_page_with_code_is_run_somewhere():
    with_code = {page for page in PAGES if any(language == "python" for language, _, _ in blocks(page))}
    assert sorted([*RUN, *TRAINS_NOTHING, *BESIDE_SBI, *run_docs.PAGES]) == sorted(with_code)


@pytest.mark.parametrize("page", run_docs.PAGES)
def test_code_that_is_run_by_hand_was_run_as_it_stands(page):
    noted = json.loads(run_docs.LAST_RUN.read_text(encoding="utf-8"))[page]
    assert noted["code"] == run_docs.checksum(page), f"run python -m tools.run_docs {page}, and refresh its output"
    assert datetime.date.fromisoformat(noted["date"]) <= datetime.datetime.now(datetime.UTC).date()
    assert noted["seconds"] > 0


def test_a_page_that_is_run_by_hand_is_noted(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "good.md").write_text("Text\n\n```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n")
    (tmp_path / "docs" / "bad.md").write_text("```python\n1 / 0\n```\n")
    for name, value in {"ROOT": tmp_path, "WORK": tmp_path / "work", "LAST_RUN": tmp_path / "runs.json"}.items():
        monkeypatch.setattr(run_docs, name, value)
    monkeypatch.setattr(run_docs, "PAGES", ("docs/good.md", "docs/bad.md"))
    assert run_docs.main(["docs/other.md"]) == 2
    assert run_docs.main(["docs/good.md"]) == 0
    assert run_docs.main([]) == 1
    assert (tmp_path / "work" / "good" / "output.txt").read_text() == "# line 4\n2\n"
    assert "ZeroDivisionError" in (tmp_path / "work" / "bad" / "errors.txt").read_text()
    assert list(json.loads((tmp_path / "runs.json").read_text())) == ["docs/good.md"]
    assert "docs/bad.md ... failed" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_code_is_code(page):
    for language, line, code in blocks(page):
        if language == "python" and ">>>" not in code:
            compile("\n" * (line - 1) + code, ROOT / page, "exec")


@pytest.mark.parametrize("page", run_docs.PAGES)
def test_code_that_takes_minutes_parses_and_its_imports_work(page):
    trees = [ast.parse(code) for language, _, code in blocks(page) if language == "python"]
    imports = [node for tree in trees for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    exec(compile(ast.Module(imports, type_ignores=[]), page, "exec"), {})


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_names_of_the_package_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for dotted in sorted(set(_NAME.findall(text))):
        found = importlib.import_module("nsmbayes")
        for part in dotted.split("."):
            if not hasattr(found, part):
                found = importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part, found)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_files_of_the_package_exist(page):
    for name in _FILE.findall((ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{page} mentions {name}"


def test_pages_have_code():
    for page in RUN:
        assert any(language == "python" for language, _, _ in blocks(page)), page


@pytest.mark.parametrize("page", PAGES)
def test_links_and_figures_exist(page):
    path = ROOT / page
    for target in _LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = path.parent / name if name else path
        assert there.exists(), f"{page} points to {target}"
        assert not anchor or anchor in anchors(there), f"{page} points to {target}"


def test_figures_are_small():
    figures = list((ROOT / "docs" / "images").rglob("*.png"))
    assert figures
    assert all(figure.stat().st_size < 300_000 for figure in figures)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.parametrize("name", ["make_results.py", "make_performance.py"])
def test_a_page_that_is_made_agrees_with_the_stored_rows(name):
    script = ROOT / "docs" / name
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The script of the results page, with temporary folders."""
    return docs_script("make_results", tmp_path, monkeypatch)


def _store(results, tmp_path, experiment, name=None):
    """Store synthetic rows of an experiment where the page looks for them."""
    document = synthetic_result(experiment, tmp_path).as_json() | {"machine": _MACHINE}
    (results.RESULTS / f"{name or experiment.name}.json").write_text(json.dumps(document))


_MACHINE = {"cpu": "some processor", "cores": 2, "python": "3.11", "packages": {"jax": "0.0"}}


def test_the_results_page_shows_all_stored_results(results, tmp_path):
    chosen = [catalogue.SIR_HEAVY, catalogue.get("gnk-zeta"), catalogue.BENCHES[1]]
    for experiment in chosen:
        _store(results, tmp_path, experiment, f"{experiment.name}-default")
    Figure(figsize=(20, 1)).savefig(_folder(tmp_path / "drawn" / "gnk-zeta-default" / "figures") / "sweep.png")
    results.take_pictures(tmp_path / "drawn")
    text = results.page()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {experiment.title[0].upper()}{experiment.title[1:]}" for experiment in chosen
    ]
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == ["images/results/gnk-zeta-default-sweep.png"]
    assert "some processor, 2 cores" in text
    assert "NSM-Bayes: coverage" in text
    assert "MSE / oracle's" in text


def _folder(path):
    path.mkdir(parents=True)
    return path


def test_the_results_page_needs_a_reason_for_every_disagreement(results, tmp_path):
    _store(results, tmp_path, catalogue.SIR.only(("nsm-bayes-conj",)), "sir-default")
    document = json.loads((results.RESULTS / "sir-default.json").read_text())
    for row in document["rows"]:
        row |= {"mse": 99.0, "mmd2_ref": 0.26}
    (results.RESULTS / "sir-default.json").write_text(json.dumps(document))
    results.REASONS["sir", "nsm-bayes-conj", "default"] = "somebody sneezed"
    assert "1. NSM-Bayes-conj, ours (MSE): somebody sneezed" in results.page()
    results.REASONS.clear()
    with pytest.raises(ValueError, match="disagrees in"):
        results.page()


def test_the_results_page_refuses_a_file_with_the_name_of_another(results, tmp_path):
    _store(results, tmp_path, catalogue.SIR_HEAVY, "sir-default")
    with pytest.raises(ValueError, match="should be called sir-heavy-default"):
        results.page()
