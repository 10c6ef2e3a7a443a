"""What compiled code depends on: the processor, and how many of its cores this process may use."""

import functools
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import ThreadpoolController


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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within, products of NumPy's matrices run in the thread that asks for them.

    For small matrices that is faster, and the library's own threads, which stay busy while they wait for more, do not
    take the cores from compiled code.
    """
    with _blas().limit(limits=1):
        yield


@functools.cache
def _blas() -> ThreadpoolController:
    """The libraries of linear algebra that are loaded."""
    return ThreadpoolController().select(user_api="blas")
