"""Print what is installed as a software bill of materials: CycloneDX 1.6, JSON, by name and version."""

import importlib.metadata
import json
import sys
from typing import Any

from tools.lock import OWN, read


def bill(own: str = OWN) -> dict[str, Any]:
    """The packages of this environment, with licences and, where they are known, checksums."""
    hashes = read()
    installed = {each.name: each for each in importlib.metadata.distributions()}
    components = [_component(each, hashes) for name, each in sorted(installed.items(), key=_name) if name != own]
    main = {"type": "library", "name": own, "version": installed[own].version, "purl": _purl(installed[own])}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": components,
    }


def _component(package: importlib.metadata.Distribution, hashes: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "name": package.name,
        "version": package.version,
        "purl": _purl(package),
    }
    stated = (package.metadata.get_all(field) for field in ("License-Expression", "License"))
    licence = next((entries[0] for entries in stated if entries), "")
    if licence and len(licence) < 100:
        found["licenses"] = [{"license": {"name": licence}}]
    digest = hashes.get(f"{package.name}=={package.version}".lower().replace("_", "-"))
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return found


def _name(item: tuple[str, Any]) -> str:
    return item[0].lower()


def _purl(package: importlib.metadata.Distribution) -> str:
    return f"pkg:pypi/{package.name.lower().replace('_', '-')}@{package.version}"


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
