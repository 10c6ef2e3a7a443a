"""Benchmark tasks: a prior, a simulator, the true parameters, and ways to contaminate what is observed."""

from nsmbayes._checks import InputError
from nsmbayes.tasks.base import NONE, Contamination, Observation, Task
from nsmbayes.tasks.gaussian import GAUSSIAN
from nsmbayes.tasks.gnk import GNK
from nsmbayes.tasks.pk import PK
from nsmbayes.tasks.radio import RADIO
from nsmbayes.tasks.sir import SIR

__all__ = ["NONE", "Contamination", "Observation", "Task", "get", "names"]

_TASKS = {task.name: task for task in (GNK, SIR, RADIO, GAUSSIAN, PK)}


def names() -> tuple[str, ...]:
    """The names that `get` knows.

    Example:
        >>> from nsmbayes import tasks
        >>> tasks.names()
        ('gnk', 'sir', 'radio', 'gaussian', 'pk')
    """
    return tuple(_TASKS)


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
    return _TASKS[name]
