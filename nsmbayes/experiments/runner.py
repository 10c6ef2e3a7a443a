"""All repeats of an experiment: in this process, in several, or on a Dask cluster; taken up again where it stopped."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

from tqdm import tqdm

from nsmbayes import _parallel
from nsmbayes._checks import InputError
from nsmbayes.experiments.description import Experiment
from nsmbayes.experiments.repeat import Result, run_group
from nsmbayes.experiments.store import Store
from nsmbayes.simulators import BudgetError

Run = Callable[..., list[Result] | Exception]


class FailedRepeatsError(RuntimeError):
    """Some repeats of an experiment failed; all others are saved."""


def run(
    experiment: Experiment,
    store: Store,
    *,
    seed: int,
    resume: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    progress: bool = True,
) -> Iterator[dict[str, Any]]:
    """The repeats as they are finished, each saved before it is returned; those that were saved before come first.

    Args:
        experiment: what to run.
        store: where the repeats are kept.
        seed: of the first repeat; the others have the numbers that follow.
        resume: take finished repeats from the store instead of running them again.
        workers: processes; by default one a core. With one everything happens in this process.
        dask: address of a Dask scheduler, or "local" for a cluster on this machine.
        progress: show a bar with the time left.
    """
    before = {own: store.load(own) for own in experiment.seeds(seed)} if resume else {}
    finished = [repeat for repeat in before.values() if repeat is not None]
    groups = [[own for own in group if before.get(own) is None] for group in experiment.groups(seed)]
    groups = [group for group in groups if group]
    with tqdm(total=experiment.repeats, initial=len(finished), disable=not progress, unit="repeat") as bar:
        bar.set_description(experiment.name)
        yield from finished
        failures: list[Exception] = []
        for results in _in_some_order(experiment, groups, seed=seed, workers=workers, dask=dask, progress=progress):
            if isinstance(results, InputError | BudgetError):
                raise results  # no repeat would do better
            if isinstance(results, Exception):
                failures.append(results)
                continue
            yield from map(store.save, results)
            bar.update(len(results))
    if failures:
        raise FailedRepeatsError(
            f"{len(failures)} of {len(groups)} runs of {experiment.name} failed, all others are saved. The first, "
            f"{failures[0].__notes__[0]}: {failures[0]}"
        ) from failures[0]


def _in_some_order(
    experiment: Experiment, groups: list[list[int]], *, seed: int, workers: int | None, dask: str | None, progress: bool
) -> Iterable[list[Result] | Exception]:
    workers = min(_parallel.cores() if workers is None else workers, len(groups))
    work = partial(_attempt, experiment, seed)
    if dask is not None:
        return _on_dask(work, groups, dask, workers)
    if workers > 1:
        return _in_processes(work, groups, workers)
    return (work(group, progress=progress) for group in groups)


def _attempt(
    experiment: Experiment, seed: int, seeds: list[int], *, progress: bool = False
) -> list[Result] | Exception:
    """The repeats, or why there are none: one that fails must not take the others with it."""
    try:
        return run_group(experiment, seed, seeds, progress=progress)
    except Exception as error:
        error.add_note(f"with the seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
        return error


def _in_processes(work: Run, groups: list[list[int]], workers: int) -> Iterator[list[Result] | Exception]:
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
    """Take this process's share of the cores, and see to it that it ends with its parent."""
    place = places.get()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if mine := cores[place::workers]:
            os.sched_setaffinity(0, mine)

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _on_dask(work: Run, groups: list[list[int]], address: str, workers: int) -> Iterator[list[Result] | Exception]:
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
