"""Where groups of repeats are run: in several processes, or on a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nsmbayes.errors import FailedRepeatsError, InputError

Group = TypeVar("Group")
Done = TypeVar("Done")

_ATTEMPTS = 3  # at what killed a process


def in_processes(work: Callable[[Group], Done], groups: Sequence[Group], workers: int) -> Iterator[Done]:
    """What `work` makes of each group, in the order in which they are finished, by processes that share the cores.

    If a process is killed, as a system without memory does, what was not finished is started again in new ones.
    """
    left = list(groups)
    for _ in range(_ATTEMPTS):
        try:
            for group, done in _in_one_pool(work, left, workers):
                left.remove(group)
                yield done
            return
        except BrokenProcessPool:
            continue
    raise FailedRepeatsError(
        f"Worker processes were killed {_ATTEMPTS} times, {len(left)} of {len(groups)} runs are missing, all others "
        "are saved. Is there too little memory? Run again with --resume and fewer --workers."
    )


def _in_one_pool(work: Callable[[Group], Done], groups: Sequence[Group], workers: int) -> Iterator[tuple[Group, Done]]:
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    places = context.Queue()
    for place in range(workers):
        places.put(place)
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, initializer=_settle, initargs=(places, workers, reader))
    try:
        with _deaf_to_interrupts():
            futures = {pool.submit(work, group): group for group in groups}
        for future in as_completed(futures):
            yield futures[future], future.result()
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
            cluster = local_cluster(workers)
        client = distributed.Client(cluster if cluster is not None else address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InputError(f"`dask`: no scheduler answers at {address!r} ({error}).") from None
    finished = 0
    try:
        futures = client.map(work, groups, pure=False)
        for future in distributed.as_completed(futures):
            yield future.result()
            finished += 1
    except (distributed.KilledWorker, distributed.CancelledError, CancelledError, OSError) as error:
        raise FailedRepeatsError(
            f"The Dask cluster was lost ({type(error).__name__}: {error}), {len(groups) - finished} of {len(groups)} "
            "runs are missing, all others are saved. Start it again, and run with --resume."
        ) from error
    finally:
        with contextlib.suppress(OSError, CancelledError):  # of a scheduler that is gone
            client.close(timeout=5)
        if cluster is not None:
            cluster.close()


def local_cluster(workers: int) -> Any:
    """A Dask cluster of processes on this machine, which nobody else can reach: loopback only, and no dashboard."""
    import distributed

    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # of metrics; without it a fixed port is used, which may be taken
        scheduler_kwargs={"dashboard": False},
    )
