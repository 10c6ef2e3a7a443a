"""All repeats of an experiment: in this process, in several, or on a Dask cluster; continued where it stopped."""

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
        """One result per seed."""
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
    """The repeats as they are finished, each saved before it is returned; those that were saved before come first.

    Args:
        experiment: what to run.
        store: where the repeats are kept.
        seed: of the first repeat; the others have the numbers that follow.
        resume: take finished repeats from the store instead of running them again.
        workers: processes; by default one per core. With one everything happens in this process.
        dask: address of a Dask scheduler, or "local" for a cluster on this machine.
        effort: less work than usual, for a trial run.
        progress: show a bar with the time left.
        run_group: runs the repeats of a group; it has to be importable by name where there are other processes.
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
    """The repeats, or why there are none: one that fails must not take the others with it."""
    try:
        return run_group(experiment, seed, seeds, effort=effort, progress=progress)
    except Exception as error:
        error.add_note(f"with the seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
        return error
