"""Compiled programs are kept on disk, so that the next process on this machine need not compile them again.

This is JAX's own persistent compilation cache, in a folder of the package. It is one of JAX's global settings, the only
one that the package touches: programs of the user that are compiled in the same process are kept there as well. Whoever
has chosen a folder for JAX, or switched its cache off, keeps that choice.

The environment variable `NSMBAYES_CACHE` moves the folder (a path) or switches the cache off (`off`). The folder may be
deleted at any time.
"""

import os
import shutil
import sys
from pathlib import Path

import jax

from nsmbayes._internal import processor

VARIABLE = "NSMBAYES_CACHE"
_LARGEST = 2**30  # bytes in the folder, above which the oldest programs are removed
_FREE = 2**28  # bytes that must be free on the disk: a program that does not fit would be cut off
_JAX_MIN_SECONDS = 1.0  # JAX's default: programs that compile faster are not kept


def keep_compiled_programs() -> Path | None:
    """Switch the cache on, unless the user decided otherwise or nothing can be written. Returns its folder if on."""
    root, settings = cache_folder(), jax.config.values
    own_folder, enabled = settings["jax_compilation_cache_dir"], settings["jax_enable_compilation_cache"]
    if root is None or own_folder is not None or not enabled:
        return None
    folder = root / f"jax-{jax.__version__}-{processor.fingerprint()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK) or shutil.disk_usage(folder).free < _FREE:
            return None
        remove_oldest(root, _LARGEST)
    except OSError:  # no home, a read-only disk, a file in the way: compile as if there were no cache
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if settings["jax_persistent_cache_min_compile_time_secs"] == _JAX_MIN_SECONDS:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a posterior is a hundred small programs
    return folder


def cache_folder() -> Path | None:
    """The folder that the environment names, the usual one of the system, or None if the cache is switched off."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() in ("off", "0", "false", "no"):
        return None
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = os.path.expanduser("~")
    usual = {"darwin": f"{home}/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", f"{home}/AppData/Local")}
    folder = Path(os.environ.get("XDG_CACHE_HOME") or usual.get(sys.platform, f"{home}/.cache")) / "nsmbayes"
    return folder if folder.is_absolute() else None  # a user without a home


def remove_oldest(root: Path, largest: int) -> None:
    """Remove empty files, which a full disk left behind, and the oldest while the rest is above `largest` bytes."""
    files = [(path, path.stat()) for path in root.glob("*/*-cache")]
    total = sum(facts.st_size for _, facts in files)
    for path, facts in sorted(files, key=lambda one: one[1].st_mtime):
        if facts.st_size == 0 or total > largest:
            path.unlink(missing_ok=True)
            total -= facts.st_size
