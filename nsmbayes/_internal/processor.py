"""The processor and the number of cores this process may use, on which compiled code depends."""

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
    """A short hash of the kind of processor and the number of cores; code compiled for another can fail or be slow.

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
    """A context in which NumPy's matrix products run in the calling thread.

    For small matrices this is faster, and the BLAS threads, which stay busy while they wait for work, do not take cores
    from compiled code.
    """
    with _blas().limit(limits=1):
        yield


@functools.cache
def _blas() -> ThreadpoolController:
    """A controller of the loaded BLAS libraries."""
    return ThreadpoolController().select(user_api="blas")
