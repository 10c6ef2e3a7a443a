"""Run all repeats of an experiment: in this process, in several, or on a Dask cluster; runs can be resumed."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Protocol

from tqdm import tqdm

from nsmbayes._internal import processor
from nsmbayes.errors import BudgetError, FailedRepeatsError, InputError
from nsmbayes.experiments.executors import in_processes, on_dask
from nsmbayes.experiments.method_cache import Effort
from nsmbayes.experiments.repeat import RepeatResult, run_group
from nsmbayes.experiments.spec import Experiment
from nsmbayes.experiments.store import Store, StoredRepeat


class RunGroup(Protocol):
    """Runs repeats that share their networks; see `run_group`."""

    def __call__(
        self, experiment: Experiment, seed: int, seeds: list[int], *, effort: Effort | None, progress: bool
    ) -> list[RepeatResult]:
        """Return one result per seed."""
        ...


def run(
    experiment: Experiment,
    store: Store,
    *,
    seed: int,
    resume: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    effort: Effort | None = None,
    progress: bool = True,
    run_group: RunGroup = run_group,
) -> Iterator[StoredRepeat]:
    """Yield the repeats in the order of completion, each saved before it is returned; stored repeats come first.

    Args:
        experiment: the experiment.
        store: where the repeats are saved.
        seed: seed of the first repeat; the others have consecutive seeds.
        resume: whether to read finished repeats from the store instead of running them again.
        workers: number of processes; by default one per core. With one, everything runs in this process.
        dask: address of a Dask scheduler, or "local" for a cluster on this machine.
        effort: settings for a trial run with less work.
        progress: whether to show a bar with the remaining time.
        run_group: function that runs the repeats of a group; with other processes it must be importable by name.
    """
    before = {own: store.load(own) for own in experiment.seeds(seed)} if resume else {}
    finished = [repeat for repeat in before.values() if repeat is not None]
    groups = [[own for own in group if before.get(own) is None] for group in experiment.groups(seed)]
    groups = [group for group in groups if group]
    work = partial(_attempt, run_group, experiment, seed, effort)
    with tqdm(total=experiment.repeats, initial=len(finished), disable=not progress, unit="repeat") as bar:
        bar.set_description(experiment.name)
        yield from finished
        failures: list[Exception] = []
        for results in _in_some_order(work, groups, workers=workers, dask=dask, progress=progress):
            if isinstance(results, InputError | BudgetError):
                raise results  # all repeats would fail in the same way
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
    work: partial[list[RepeatResult] | Exception],
    groups: list[list[int]],
    *,
    workers: int | None,
    dask: str | None,
    progress: bool,
) -> Iterable[list[RepeatResult] | Exception]:
    workers = min(processor.cores() if workers is None else workers, len(groups))
    if dask is not None:
        return on_dask(work, groups, dask, workers)
    if workers > 1:
        return in_processes(work, groups, workers)
    return (work(group, progress=progress) for group in groups)


def _attempt(
    run_group: RunGroup,
    experiment: Experiment,
    seed: int,
    effort: Effort | None,
    seeds: list[int],
    *,
    progress: bool = False,
) -> list[RepeatResult] | Exception:
    """Return the results of the repeats, or the exception: a failure must not stop the other groups."""
    try:
        return run_group(experiment, seed, seeds, effort=effort, progress=progress)
    except Exception as error:
        error.add_note(f"with the seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
        return error
