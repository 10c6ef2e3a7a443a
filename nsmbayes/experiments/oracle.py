"""The best that could be done: the posterior under the exact likelihood, where a task has one."""

from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes._checks import InputError
from nsmbayes.tasks import Task, gnk_exact


def oracle_posterior(task: Task, clean_x: Any, *, draws: int, seed: int) -> Float[np.ndarray, "draws d_theta"]:
    """Draws from the exact posterior given uncontaminated observations."""
    if task.name != "gnk":
        raise InputError(f"`task` {task.name} has no exact likelihood.")
    return gnk_exact.oracle_posterior(task.prior, clean_x, draws=draws, seed=seed)
