"""The processor and the number of cores this process may use, on which compiled code depends."""

import functools
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from threadpoolctl import OpenBLASController, ThreadpoolController


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


class _BlasLimit:
    """Limits the threads of the BLAS libraries from the first thread that asks for it until the last one has finished.

    `threadpoolctl` alone would not do: a thread that begins while another one holds the limit takes the limit for the
    original number of threads, and would restore that.
    """

    def __init__(self) -> None:
        self.lock, self.depth, self.limiter = Lock(), 0, None

    def begin(self) -> None:
        """Limit the libraries to one thread, unless they are limited already."""
        with self.lock:
            if self.depth == 0:
                self.limiter = _blas().limit(limits=1)
            self.depth += 1

    def end(self) -> None:
        """Restore the number of threads if nobody else needs the limit."""
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and self.limiter is not None:
                OpenBLASController.clear_controlling_thread(force=True)  # the thread that began may be another one
                self.limiter.restore_original_limits()
                OpenBLASController.clear_controlling_thread(force=True)


_limit = _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within this context, NumPy's matrix products run in the calling thread.

    That is faster for small matrices, and the threads of the BLAS library, which stay busy while they wait, do not take
    cores from compiled code.
    """
    _limit.begin()
    try:
        yield
    finally:
        _limit.end()


@functools.cache
def _blas() -> ThreadpoolController:
    """The loaded BLAS libraries."""
    return ThreadpoolController().select(user_api="blas")
