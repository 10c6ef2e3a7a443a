"""What Sphinx is told beyond its own: the navigation, formulas, the reference, and when code was last run.

The pages in `docs/` are plain Markdown that reads as well on a Git host. Everything that only a site needs is added
while they are read, and stands in no file: the tables of `index.md` become the navigation, `changelog.md` the
changelog, and a page whose code is run by hand says when that was. The reference has a page for every room.
"""

import importlib
import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LAST_RUN = DOCS / "last-run.json"

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"^\| \[[^]]+\]\(([\w-]+)\.md\)", re.MULTILINE)
_ROOM = re.compile(r"^\| `(nsmbayes[\w.]*)` \|", re.MULTILINE)
_TITLE = re.compile(r'^```(\w+) title="([^"]+)"$', re.MULTILINE)
_MARKUP = re.compile(r"[|*]|(?<=\w)_(?!\w)")
_ARRAY = re.compile(r"(?:jaxlib\._jax|numpy)\.(Array|ndarray)")
_ATTRIBUTES = ("attribute", "data", "property")
_LOG = logging.getLogger(__name__)


def sections(index: str) -> dict[str, list[str]]:
    """The pages that each table of `index.md` links to in its first column, by the heading above it.

    Example:
        >>> sections("## Start\\n| [First steps](first.md) | now |\\n\\n## More\\n| [Second](second.md) | later |")
        {'Start': ['first'], 'More': ['second']}
    """
    parts = _HEADING.split(index)[1:]
    found = {title: _PAGE.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    return {title: pages for title, pages in found.items() if pages}


def rooms() -> list[str]:
    """The modules that `api.md` lists, each of which gets a page."""
    return _ROOM.findall((DOCS / "api.md").read_text(encoding="utf-8"))


def public_names(module: ModuleType) -> list[str]:
    """The names that a module offers: those of `__all__`, or all that were made in it and have no underscore."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not name.startswith("_")]
    found = {name: getattr(value, "__module__", "") for name, value in vars(module).items() if name[0] != "_"}
    return [name for name, home in found.items() if f"{home}.".startswith(f"{module.__name__}.")]


def room_page(name: str, homes: list[str]) -> str:
    """The page of one room in the reference, for autodoc. Names of another room are only pointed to."""
    module = importlib.import_module(name)
    entries = [_entry(name, each, getattr(module, each), homes) for each in public_names(module)]
    head = [name, "=" * len(name), "", f".. py:module:: {name}", "", inspect.getdoc(module) or "", ""]
    return "\n".join([*head, *filter(None, entries)])


def _entry(room: str, name: str, value: Any, homes: list[str]) -> str | None:
    """What the page of a room says about one name; None for a value that has nothing to say beyond its type."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return None
    home = max((each for each in homes if f"{value.__module__}.".startswith(f"{each}.")), key=len, default=room)
    if home != room:
        return f"- `{name}`: see :py:obj:`{home}.{value.__name__}`\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {room}.{name}\n"
    return f".. {'autoexception' if issubclass(value, Exception) else 'autoclass'}:: {room}.{name}\n"


def last_run(page: str) -> str:
    """When the code of a page that no test runs was last run, as a sentence below the page; nothing for others."""
    known = json.loads(LAST_RUN.read_text(encoding="utf-8")) if LAST_RUN.exists() else {}
    run = known.get(f"docs/{page}.md")
    if run is None:
        return ""
    how = f"{run['seconds']:.0f} s on a shared machine, nsmbayes {run['version']}"
    return f"\n\n---\n\nThe code of this page was last run on {run['date']}: {how}.\n"


def _toctree(pages: list[str], *, caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["\n```{toctree}", *options, "", *pages, "```\n"])


def _add(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page what only the site shows."""
    if page == "index":
        trees = [_toctree(pages, caption=title) for title, pages in sections(source[0]).items()]
        source[0] += "\n".join(trees)
    elif page == "api":
        source[0] += _toctree([f"api/{room}" for room in rooms()])
    elif page == "changelog":
        source[0] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    else:
        source[0] = _TITLE.sub(r"`\2`:\n\n```\1", source[0]) + last_run(page)


def _write_reference(app: Sphinx) -> None:
    """Write a page for every room, and only those that changed."""
    folder = DOCS / "api"
    folder.mkdir(exist_ok=True)
    wanted = {folder / f"{name}.rst": room_page(name, rooms()) for name in rooms()}
    for stale in set(folder.glob("*.rst")) - set(wanted):
        stale.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def as_plain_text(line: str) -> str:
    """A line of a docstring with a backslash before what reStructuredText would read as markup; code is left alone.

    Example:
        >>> as_plain_text("at most |s|^2, see `a|b`")
        'at most \\\\|s\\\\|^2, see `a|b`'
    """
    parts = line.split("`")
    parts[::2] = [_MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def _escape_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings are plain text: only backticks, lists, `Args:` and examples mean something in them."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith((">>>", "...")) or (example and bool(line.strip()))
        if not example:
            lines[number] = as_plain_text(line)
    if what in _ATTRIBUTES:
        app.env.temp_data[name] = list(lines)


def _restore_attribute(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """After napoleon, which takes what stands before a colon in the docstring of an attribute for its type."""
    if what in _ATTRIBUTES:
        lines[:] = app.env.temp_data.pop(name) or []


def _shorten_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Arrays by the names that people give them."""
    return tuple(text and _ARRAY.sub(r"\1", text) for text in (arguments, returned))  # type: ignore[return-value]


def _visit_math(translator: Any, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw themselves: no script, and no fonts from elsewhere."""
    block = isinstance(node, nodes.math_block)
    drawn = convert(node.astext(), display="block" if block else "inline")
    if "\\" in drawn:
        _LOG.warning("a command in the formula %r is not known", node.astext(), location=node)
    translator.body.append(f'<div class="formula">{drawn}</div>' if block else drawn)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all of this with Sphinx."""
    app.add_lexer("csv", TextLexer)
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math, None))
    app.connect("builder-inited", _write_reference)
    app.connect("autodoc-process-docstring", _escape_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _restore_attribute, priority=600)
    app.connect("autodoc-process-signature", _shorten_signature)
    app.connect("source-read", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
