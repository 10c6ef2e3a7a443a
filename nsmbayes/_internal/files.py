"""Atomic file writes: a reader sees the complete file or none."""

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` atomically; create its folder if needed."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write `content` to `path` atomically; create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(scratch, 0o666 & ~_umask())  # mkstemp creates files that only their owner can read
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
