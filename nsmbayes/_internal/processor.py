"""What compiled code depends on: the processor, and how many of its cores this process may use."""

import hashlib
import os
import platform
from pathlib import Path


def cores() -> int:
    """The number of cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fingerprint() -> str:
    """A short name for the kind of processor and the number of cores. Code compiled for another one can fail or crawl.

    Example:
        >>> fingerprint() == fingerprint()
        True
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    features = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    described = (platform.system(), platform.machine(), platform.processor(), *sorted(features))
    return f"{hashlib.sha256(repr(described).encode()).hexdigest()[:12]}-{cores()}"
