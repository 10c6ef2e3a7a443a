"""What the documentation site is made of; `make docs` builds it."""

import importlib
import inspect
import json

import pytest

from tools import site


def test_every_page_is_in_the_navigation_once():
    listed = [page for pages in site.sections((site.DOCS / "index.md").read_text()).values() for page in pages]
    there = [path.stem for path in site.DOCS.glob("*.md") if path.stem != "index"]
    assert sorted(listed) == sorted(there)


def test_rows_of_tables_alone_are_navigation():
    text = "[no](a.md)\n## One\n| [x](b.md) | see [y](c.md) |\nand [z](d.md)\n## Two\nnothing\n"
    assert site.sections(text) == {"One": ["b"]}


@pytest.mark.parametrize("name", site.rooms())
def test_the_reference_names_everything_public(name):
    module = importlib.import_module(name)
    text = site.room_page(name, site.rooms())
    for public in site.public_names(module):
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert f":: {name}.{public}\n" in text or f"- `{public}`: see" in text


def test_every_room_with_public_names_is_in_the_reference():
    import nsmbayes

    assert {f"nsmbayes.{room}" for room in nsmbayes._MODULES} <= set(site.rooms())
    assert {f"nsmbayes.{room}" for room in nsmbayes._NAMES if room != "diagnostics.metrics"} <= set(site.rooms())


def test_a_page_says_when_its_code_was_run(tmp_path, monkeypatch):
    file = tmp_path / "runs.json"
    file.write_text(json.dumps({"docs/a.md": {"date": "2026-01-02", "seconds": 71.4, "version": "0.1"}}))
    monkeypatch.setattr(site, "LAST_RUN", file)
    assert "last run on 2026-01-02: 71 s" in site.last_run("a")
    assert site.last_run("b") == ""
