"""Execution of groups of repeats in several processes, or on a Dask cluster."""

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

_ATTEMPTS = 3  # maximum number of attempts if worker processes are killed


def in_processes(work: Callable[[Group], Done], groups: Sequence[Group], workers: int) -> Iterator[Done]:
    """Yield the result of `work` for each group, in the order of completion, from processes that share the cores.

    If a process is killed, e.g. by a system without memory, unfinished groups are started again in new processes.
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
        writer.close()  # all workers end immediately, including unfinished ones
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C, which a terminal sends to all processes: their parent handles it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _settle(places: Any, workers: int, reader: Connection) -> None:
    """Pin this process to its share of the cores, and end it when the parent dies or closes its end of `reader`."""
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
    """Yield the result of `work` for each group, in the order of completion, from the workers of a Dask cluster.

    `address` is that of the scheduler, or "local" for a cluster of `workers` processes on this machine.
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
        with contextlib.suppress(OSError, CancelledError):  # raised if the scheduler is gone
            client.close(timeout=5)
        if cluster is not None:
            cluster.close()


def local_cluster(workers: int) -> Any:
    """Start a Dask cluster of processes on this machine, accessible only locally: loopback only, and no dashboard."""
    import distributed

    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # for metrics; the default is a fixed port, which may be in use
        scheduler_kwargs={"dashboard": False},
    )
