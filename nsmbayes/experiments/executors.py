"""Where groups of repeats are run: in several processes, or on a Dask cluster."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from nsmbayes._internal.processes import end_with_parent
from nsmbayes.errors import InputError

Group = TypeVar("Group")
Done = TypeVar("Done")


def in_processes(work: Callable[[Group], Done], groups: Sequence[Group], workers: int) -> Iterator[Done]:
    """What `work` makes of each group, in the order in which they are finished, by processes that share the cores."""
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    places = context.Queue()
    for place in range(workers):
        places.put(place)
    pool = ProcessPoolExecutor(workers, context, initializer=_settle, initargs=(places, workers, os.getpid()))
    try:
        for future in as_completed([pool.submit(work, group) for group in groups]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _settle(places: Any, workers: int, parent: int) -> None:
    """Take this process's share of the cores, and make sure that it ends with its parent."""
    place = places.get()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if mine := cores[place::workers]:
            os.sched_setaffinity(0, mine)
    end_with_parent(parent)


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
