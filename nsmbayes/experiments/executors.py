"""Where groups of repeats are run: in several processes, or on a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nsmbayes.errors import InputError

Group = TypeVar("Group")
Done = TypeVar("Done")


def in_processes(work: Callable[[Group], Done], groups: Sequence[Group], workers: int) -> Iterator[Done]:
    """What `work` makes of each group, in the order in which they are finished, by processes that share the cores."""
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    places = context.Queue()
    for place in range(workers):
        places.put(place)
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, initializer=_settle, initargs=(places, workers, reader))
    try:
        with _deaf_to_interrupts():
            futures = [pool.submit(work, group) for group in groups]
        for future in as_completed(futures):
            yield future.result()
    finally:
        writer.close()  # workers end at once, also those that have not finished
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started within do not hear Ctrl-C, which a terminal sends to all: their parent decides."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _settle(places: Any, workers: int, reader: Connection) -> None:
    """Take this process's share of the cores, and end when the parent closes the other end of `reader`, or dies."""
    place = places.get()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if mine := cores[place::workers]:
            os.sched_setaffinity(0, mine)

    def watch():
        with contextlib.suppress(OSError):
            reader.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_dask(work: Callable[[Group], Done], groups: Sequence[Group], address: str, workers: int) -> Iterator[Done]:
    """What `work` makes of each group, in the order in which they are finished, by the workers of a Dask cluster.

    `address` is that of its scheduler, or "local" for a cluster of `workers` processes on this machine.
    """
    try:
        import distributed
    except ImportError:
        raise InputError("`dask` needs the package distributed: pip install 'nsmbayes[dask]'.") from None
    cluster = None
    try:
        if address == "local":
            cluster = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
        client = distributed.Client(cluster if cluster is not None else address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InputError(f"`dask`: no scheduler answers at {address!r} ({error}).") from None
    try:
        futures = client.map(work, groups, pure=False)
        for future in distributed.as_completed(futures):
            yield future.result()
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
