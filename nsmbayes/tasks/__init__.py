"""Benchmark tasks: a prior, a simulator, the true parameters, and ways to contaminate the observations."""

from nsmbayes.errors import InputError
from nsmbayes.tasks.base import NONE, Contamination, Observation, Task, all_at_once, in_chunks
from nsmbayes.tasks.gaussian import GAUSSIAN
from nsmbayes.tasks.gnk import GNK
from nsmbayes.tasks.pk import PK
from nsmbayes.tasks.radio import RADIO
from nsmbayes.tasks.sir import SIR

__all__ = [
    "NONE",
    "Contamination",
    "Observation",
    "Task",
    "TASKS",
    "all_at_once",
    "in_chunks",
    "get",
    "names",
    "register",
]

TASKS: dict[str, Task] = {task.name: task for task in (GNK, SIR, RADIO, GAUSSIAN, PK)}
"""Every task by its name."""


def register(task: Task) -> Task:
    """Add your own task to those that `get` and `nsmbayes reproduce` know."""
    if not isinstance(task, Task):
        raise InputError(f"`task` must be a Task; got {type(task).__name__}.")
    if task.name in TASKS:
        raise InputError(f"`task` must have a name of its own: there is a task {task.name!r} already.")
    TASKS[task.name] = task
    return task


def names() -> tuple[str, ...]:
    """The names that `get` knows.

    Example:
        >>> from nsmbayes import tasks
        >>> tasks.names()
        ('gnk', 'sir', 'radio', 'gaussian', 'pk')
    """
    return tuple(TASKS)


def get(name: str) -> Task:
    """The task called `name`.

    Example:
        >>> from nsmbayes import tasks
        >>> task = tasks.get("gnk")
        >>> theta, x = task.simulate(1000, seed=0)
        >>> theta.shape, x.shape
        ((1000, 4), (1000, 1))
    """
    if name not in names():
        raise InputError(f"There is no task {name!r}; the tasks are: {', '.join(map(repr, names()))}.")
    return TASKS[name]
