"""Files written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` in one step, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(scratch, 0o666 & ~_umask())  # mkstemp makes files that nobody else may read
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
