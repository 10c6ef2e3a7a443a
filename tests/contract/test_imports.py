"""Imports run along the data and never back."""

import ast
import functools
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "nsmbayes"

# Every module and package of the house, in the order of the data. One may import from itself and from the rows above
# it; where names follow, from these alone. The empty name is nsmbayes/__init__.py, the public names.
ORDER: dict[str, tuple[str, ...] | None] = {
    "errors": (),
    "_internal": ("errors",),
    "serialisation": ("errors", "_internal"),
    "priors": ("errors", "_internal"),
    "calls": ("errors", "_internal"),
    "simulators": ("errors", "_internal", "priors", "calls"),
    "tasks": ("errors", "_internal", "priors", "simulators"),
    "surrogates": ("errors", "_internal", "serialisation"),
    "training": ("errors", "_internal", "surrogates"),
    "scatter": ("errors", "_internal"),
    "weights": ("errors", "_internal", "serialisation", "surrogates", "scatter"),
    "losses": ("errors", "_internal", "priors", "surrogates", "scatter", "weights"),
    "samplers": ("errors", "_internal", "serialisation", "priors", "losses"),
    "suspects": ("_internal", "errors", "priors", "surrogates", "scatter", "weights", "losses", "samplers"),
    "calibration": None,
    "posteriors": None,
    "robustness": None,
    "diagnostics": None,
    "methods": None,
    "interop": None,
    "plotting": None,
    "report": None,
    "explore": None,
    "": None,
    "experiments": None,
    "cli": None,
    "__main__": ("cli",),
}


def _sources() -> dict[str, str]:
    """The text of every module of the package by its dotted name."""
    names = {path: path.relative_to(ROOT.parent).with_suffix("").parts for path in sorted(ROOT.rglob("*.py"))}
    return {".".join(parts).removesuffix(".__init__"): path.read_text() for path, parts in names.items()}


@functools.cache
def _import_nodes(text: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports anywhere in a text: at the top, in a function, for types."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def _imports(module: str, text: str, modules: dict[str, str], *, is_package: bool) -> Iterator[str]:
    """The modules of the package that `module` imports."""
    for node in _import_nodes(text):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            if node.level:
                parents = module.split(".") + [""] * is_package
                base = ".".join([*parents[: -node.level], *([base] if base else [])])
            # `from package import name`: the name is a module of its own, or lives in the package's __init__.
            both = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in modules else base for name in both]
        yield from (name for name in targets if name.split(".")[0] == "nsmbayes")


def _row(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def offences(modules: dict[str, str]) -> list[str]:
    """What is wrong with the imports of the modules, in words."""
    packages = {name.rpartition(".")[0] for name in modules} | {"nsmbayes"}
    rows = list(ORDER)
    found = [f"{name} is not in ORDER" for name in modules if _row(name) not in ORDER]
    for name, text in modules.items():
        own = _row(name)
        for target in _imports(name, text, modules, is_package=name in packages):
            other = _row(target)
            if own == other or own not in ORDER or other not in ORDER:
                continue
            only = ORDER[own]
            if rows.index(other) > rows.index(own):
                found.append(f"{name} imports {target}, which comes after it")
            elif only is not None and other not in only:
                found.append(f"{name} imports {target}, but may import {', '.join(only) or 'nothing'} only")
    return found


def test_imports_run_along_the_data():
    sources = _sources()
    assert len(sources) > 30
    assert offences(sources) == []


def test_no_module_imports_itself_by_a_detour():
    sources = _sources()
    packages = {name.rpartition(".")[0] for name in sources}
    graph = {name: set(_imports(name, text, sources, is_package=name in packages)) for name, text in sources.items()}
    assert sum(map(len, graph.values())) > 100
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def _offences_of(module, text):
    """The offences of one module in the company of all others."""
    return [found for found in offences(_sources() | {module: text}) if found.startswith(f"{module} ")]


@pytest.mark.parametrize(
    ("module", "text", "complaint"),
    [
        ("nsmbayes.tasks.new", "from nsmbayes.samplers import sample_nuts", "comes after"),
        ("nsmbayes.tasks.new", "def f():\n    import nsmbayes.samplers.nuts", "comes after"),
        ("nsmbayes.tasks.new", "from nsmbayes import priors, methods", "imports nsmbayes.methods"),
        ("nsmbayes.tasks.new", "from nsmbayes import NSMBayesConj", "imports nsmbayes, which comes after"),
        ("nsmbayes.tasks.new", "from ..methods import base", "imports nsmbayes.methods"),
        ("nsmbayes.tasks.new", "from .. import methods", "imports nsmbayes.methods"),
        ("nsmbayes.samplers.new", "from nsmbayes.tasks import get", "serialisation, priors, losses only"),
        ("nsmbayes.scatter.new", "from nsmbayes.surrogates import MDN", "errors, _internal only"),
        ("nsmbayes.errors", "from nsmbayes._internal import checks", "comes after"),
        ("nsmbayes.brand_new", "", "not in ORDER"),
    ],
)
def test_the_test_sees_an_offence(module, text, complaint):
    (found,) = _offences_of(module, text)
    assert complaint in found


@pytest.mark.parametrize(
    "text",
    [
        "import numpy",
        "from nsmbayes._internal import checks",
        "from . import base",
        "from .gnk import quantile",
        "import nsmbayes.priors",
        "x = 'import nsmbayes.methods'",
    ],
)
def test_the_test_sees_no_offence_where_there_is_none(text):
    assert _offences_of("nsmbayes.tasks.new", text) == []


def test_contributing_shows_this_order():
    """The plan that a newcomer reads is the one that is enforced."""
    text = (ROOT.parent / "CONTRIBUTING.md").read_text()
    block = text.split("<!-- import order -->")[1].split("```")[1].removeprefix("text")
    assert block.replace("->", " ").split() == [name for name in ORDER if name]


def test_no_module_takes_a_private_name_of_another():
    allowed, found = ("_internal", "__version__"), []
    for name, text in _sources().items():
        for node in _import_nodes(text):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nsmbayes"):
                taken = [alias.name for alias in node.names if alias.name.startswith("_") and alias.name not in allowed]
                found += [f"{name}: {node.module}.{one}" for one in taken]
    assert found == []


def test_no_file_is_long():
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {name: size for name, size in sizes.items() if size > 350} == {}


@pytest.mark.parametrize("x64", ["0", "1"])
def test_importing_is_light_and_leaves_jax_alone(x64):
    """In a fresh process: optional libraries stay out, and the user's precision is what it was."""
    code = (
        "import sys, jax; before = jax.config.jax_enable_x64; import nsmbayes, nsmbayes.methods;"
        "large = {'torch', 'sbi', 'arviz', 'flowjax', 'bokeh'} & set(sys.modules);"
        "print(before, jax.config.jax_enable_x64, *sorted(large))"
    )
    environment = os.environ | {"JAX_ENABLE_X64": x64}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert result.stderr == ""
    assert result.stdout.split() == [str(x64 == "1")] * 2
