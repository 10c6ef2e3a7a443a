"""The scripts that write pages of the documentation, as modules."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def docs_script(name, folder, monkeypatch):
    """The script `docs/<name>.py`, which reads rows from a folder and draws pictures below another."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", folder / "results")
    monkeypatch.setattr(module, "PICTURES", folder / "pictures")
    module.RESULTS.mkdir()
    return module
