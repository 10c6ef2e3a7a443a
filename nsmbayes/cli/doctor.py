"""Check whether the package works on this machine: versions, devices, the cache of compiled programs."""

import argparse
import json
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes._internal.compilation import VARIABLE, cache_folder
from nsmbayes._internal.files import write_text
from nsmbayes._internal.precision import double_precision
from nsmbayes.experiments import machine

_EXTRAS = {  # package: (extra, what it is for)
    "flowjax": ("flows", "surrogate='maf'"),
    "arviz": ("arviz", "posterior.to_arviz()"),
    "distributed": ("dask", "simulations and experiments on Dask"),
    "sbi": ("sbi", "nsmbayes.from_sbi"),
}


def run(options: argparse.Namespace) -> int:
    """Run the command; return 0 without problems, 1 if something required is missing."""
    found = examine()
    print(describe(found))
    if options.json is not None:
        write_text(options.json, json.dumps(found, indent=2, allow_nan=False) + "\n")
    return 1 if found["problems"] else 0


def examine() -> dict[str, Any]:
    """Find out which packages and devices are available and work."""
    facts = machine.facts()
    packages = {name: _version(name) for name in _required()}
    problems = [f"{name} is not installed: pip install {name}" for name, found in packages.items() if found is None]
    devices = []
    for device in jax.devices():
        works = _computes(device)
        devices.append({"platform": device.platform, "kind": device.device_kind, "works": works})
        if not works:
            problems.append(f"the device {device} does not compute in double precision")
    return {
        "machine": {name: facts[name] for name in ("system", "cpu", "cores", "memory_gib", "python")},
        "packages": {"nsmbayes": _version("nsmbayes")} | packages,
        "extras": {name: _version(name) for name in _EXTRAS},
        "devices": devices,
        "cache": _cache(),
        "problems": problems,
    }


def describe(found: dict[str, Any]) -> str:
    """Format the result of `examine` as text."""
    here, cache = found["machine"], found["cache"]
    lines = [
        f"nsmbayes {found['packages']['nsmbayes']} on Python {here['python']}, {here['system']}",
        f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB",
        "",
        "packages: " + ", ".join(f"{k} {v or 'MISSING'}" for k, v in found["packages"].items() if k != "nsmbayes"),
    ]
    for name, (extra, purpose) in _EXTRAS.items():
        there = found["extras"][name]
        lines.append(f"{name}: {there or f'not installed (pip install nsmbayes[{extra}])'}; for {purpose}")
    for device in found["devices"]:
        lines.append(f"device: {device['platform']} ({device['kind']}), {'works' if device['works'] else 'FAILS'}")
    if cache["folder"] is None:
        lines.append(f"compiled programs are not kept ({VARIABLE} is off, or there is no home)")
    else:
        lines.append(
            f"compiled programs: {cache['programs']} in {cache['folder']}, {cache['mib']} MiB; "
            f"{cache['free_gib']} GiB free; {VARIABLE} moves it or switches it off"
        )
    lines += ["", *(found["problems"] or ["All is well."])]
    return "\n".join(lines)


def _required() -> list[str]:
    """The packages that nsmbayes depends on, by name."""
    given = requires("nsmbayes") or []
    names = [text.split(";")[0] for text in given if "extra ==" not in text]
    return sorted("".join(c if c.isalnum() or c in "-_." else " " for c in name).split()[0] for name in names)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@double_precision
def _computes(device: Any) -> bool:
    try:
        with jax.default_device(device):
            return bool(np.isclose(jnp.linalg.inv(jnp.array([[2.0, 1.0], [1.0, 1.0]]))[0, 0], 1.0, atol=1e-12))
    except Exception:  # drivers can raise any exception
        return False


def _cache() -> dict[str, Any]:
    folder = cache_folder()
    if folder is None:
        return {"folder": None}
    files = [path.stat().st_size for path in folder.glob("*/*-cache")] if folder.is_dir() else []
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    return {
        "folder": str(Path(folder)),
        "programs": len(files),
        "mib": round(sum(files) / 2**20, 1),
        "free_gib": round(free / 2**30, 1),
    }
