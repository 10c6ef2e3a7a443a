"""Compiled programs are cached on disk, so that the next process on this machine need not compile them again.

This is JAX's persistent compilation cache, in a folder of the package. It is the only global setting of JAX that the
package changes: programs of the user that are compiled in the same process are also cached there. If the user has
chosen a folder for JAX or switched its cache off, this choice is kept.

The environment variable `NSMBAYES_CACHE` moves the folder (a path) or switches the cache off (`off`). The folder can be
deleted at any time.
"""

import os
import shutil
import sys
from pathlib import Path

import jax

from nsmbayes._internal import processor

VARIABLE = "NSMBAYES_CACHE"
_LARGEST = 2**30  # largest size of the folder in bytes; above it, the oldest programs are removed
_FREE = 2**28  # bytes that must be free on the disk: a program that does not fit would be truncated
_JAX_MIN_SECONDS = 1.0  # JAX's default: programs that compile faster are not cached


def keep_compiled_programs() -> Path | None:
    """Switch the cache on and return its folder; None if the user decided otherwise or nothing can be written."""
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
    except OSError:  # no home, a read-only disk, a file in place of the folder: work without a cache
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if settings["jax_persistent_cache_min_compile_time_secs"] == _JAX_MIN_SECONDS:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a posterior is a hundred small programs
    return folder


def cache_folder() -> Path | None:
    """The folder from the environment variable or the default of the system; None if the cache is switched off."""
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
    """Remove empty files, left by a full disk, and the oldest files while the total is above `largest` bytes."""
    files = [(path, path.stat()) for path in root.glob("*/*-cache")]
    total = sum(facts.st_size for _, facts in files)
    for path, facts in sorted(files, key=lambda one: one[1].st_mtime):
        if facts.st_size == 0 or total > largest:
            path.unlink(missing_ok=True)
            total -= facts.st_size
