"""Executors of simulations: this process, several processes, any executor of `concurrent.futures`, or Dask.

An executor turns pieces of work into outcomes, in any order. It holds only a few of them at any time.
"""

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import cloudpickle

from nsmbayes._internal import checks
from nsmbayes.calls import Caller, Outcome, Work, evaluate
from nsmbayes.calls.isolation import Crew, end_idle, evaluate_isolated, pickled
from nsmbayes.errors import InputError, SimulationError

_MOST_WAITING = 64  # pieces queued on a Dask cluster, since an adaptive cluster only grows if work is waiting

_MOST_LOST = 5  # number of times that a piece of work may be lost because its worker died

Outcomes = Generator[tuple[Work, Outcome], None, None]


def outcomes(simulator: Caller, works: Iterator[Work], executor: Any, timeout: float | None) -> Outcomes:
    """The outcome of each piece of work, in the order in which they finish.

    Args:
        simulator: the simulator.
        works: pieces of work; they are taken one by one, when there is room for them.
        executor: None for this process; a number of processes; a `concurrent.futures.Executor`; a Dask client, or the
            address of a Dask scheduler.
        timeout: seconds that a call of the simulator may take; if it is given, calls are made in separate processes.
    """
    timeout = checks.optional_positive(timeout, "timeout")
    if executor is None:
        return _here(simulator, works, timeout)
    if isinstance(executor, Executor):
        return _in_executor(simulator, works, executor, timeout)
    if isinstance(executor, str) or _is_dask(executor):
        return _on_dask(simulator, works, executor, timeout)
    try:
        workers = checks.integer(executor, "executor", at_least=1)
    except InputError:
        raise InputError(
            "`executor` must be None, a number of processes, a concurrent.futures.Executor, a Dask client or the "
            f"address of a Dask scheduler; got {executor!r}."
        ) from None
    return _in_processes(simulator, works, workers, timeout)


def _here(simulator: Caller, works: Iterator[Work], timeout: float | None) -> Outcomes:
    if timeout is None:
        yield from ((work, evaluate(simulator, work)) for work in works)
        return
    payload = pickled(simulator)
    try:
        yield from ((work, evaluate_isolated(payload, work, timeout)) for work in works)
    finally:
        end_idle()


def _in_processes(simulator: Caller, works: Iterator[Work], workers: int, timeout: float | None) -> Outcomes:
    """Each thread of a pool waits for one process. A process that dies is replaced; the others continue."""
    payload, crew = pickled(simulator), Crew()
    pool = ThreadPoolExecutor(workers, "nsmbayes-simulate")
    try:
        yield from _finished(
            lambda work: pool.submit(evaluate_isolated, payload, work, timeout, crew), works, lambda: 2 * workers
        )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        crew.end()


def _in_executor(simulator: Caller, works: Iterator[Work], pool: Executor, timeout: float | None) -> Outcomes:
    payload, workers = pickled(simulator), getattr(pool, "_max_workers", os.cpu_count() or 1)
    try:
        yield from _finished(lambda work: pool.submit(run_piece, payload, work, timeout), works, lambda: 2 * workers)
    except BrokenExecutor as error:
        raise SimulationError(
            f"A worker of `executor` died, and it takes no more work ({error}). What is stored is kept: call again "
            "with a new one. If the simulator kills its process, pass a number of processes instead, or a `timeout`."
        ) from error


def _on_dask(simulator: Caller, works: Iterator[Work], executor: Any, timeout: float | None) -> Outcomes:
    """Dask moves the work of a dead worker to another; work that kills several workers runs in a separate process."""
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        client = executor
        if isinstance(executor, str):
            try:
                client = stack.enter_context(distributed.Client(executor, timeout="10s"))
            except (OSError, ValueError) as error:
                raise InputError(f"`executor`: no Dask scheduler answers at {executor!r} ({error}).") from None
        payload = pickled(simulator)  # sent with every piece: scattered data are lost with the workers that hold them

        def submit(work: Work, isolated: bool = False) -> Any:
            return client.submit(run_piece, payload, work, timeout, isolated, pure=False)

        def waiting() -> int:
            return max(_MOST_WAITING, 2 * sum(client.nthreads().values()))

        lost = (distributed.scheduler.KilledWorker, distributed.client.FutureCancelledError)
        yield from _finished(submit, works, waiting, again=(lost, functools.partial(submit, isolated=True)))


def _never(work: Work) -> Any:
    raise AssertionError


def _finished(
    submit: Callable[[Work], Any],
    works: Iterator[Work],
    most: Callable[[], int],
    again: tuple[tuple[type[Exception], ...], Callable[[Work], Any]] = ((), _never),
) -> Outcomes:
    """Submit pieces of work, at most `most()` at a time, and yield those that are finished.

    Work that ends with one of the errors in `again` is submitted again, by the function in `again`.
    """
    queue: SimpleQueue[tuple[Work, Any]] = SimpleQueue()
    running: dict[int, Any] = {}
    lost: Counter[int] = Counter()

    def start(work: Work, how: Callable[[Work], Any]) -> None:
        running[work.start] = future = how(work)
        future.add_done_callback(lambda done: queue.put((work, done)))

    try:
        exhausted = False
        while running or not exhausted:
            while not exhausted and len(running) < most():
                work = next(works, None)
                exhausted = work is None
                if work is not None:
                    start(work, submit)
            if not running:
                return
            work, future = queue.get()
            del running[work.start]
            try:
                outcome = future.result()
            except again[0]:
                lost[work.start] += 1
                if lost[work.start] > _MOST_LOST:
                    raise
                start(work, again[1])
                continue
            yield work, outcome
    finally:
        for future in running.values():
            future.cancel()


def run_piece(payload: bytes, work: Work, timeout: float | None, isolated: bool = False) -> Outcome:
    """Simulate the rows of `work` on a worker."""
    if isolated or timeout is not None:
        return evaluate_isolated(payload, work, timeout)
    return evaluate(_simulator(payload), work)


@functools.lru_cache(maxsize=1)
def _simulator(payload: bytes) -> Caller:
    return cloudpickle.loads(payload)


def _is_dask(executor: Any) -> bool:
    return type(executor).__module__.partition(".")[0] == "distributed"


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError("`executor`: Dask needs the package distributed: pip install 'nsmbayes[dask]'.") from None
    return distributed
