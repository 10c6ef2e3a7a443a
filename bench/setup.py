"""Shared setup of several benchmarks: a trained method, and data sets with outliers."""

import functools

import numpy as np
from jaxtyping import Float

import nsmbayes as nsm


@functools.cache
def brief_method() -> nsm.NSMBayesConj:
    """A conjugate method on g-and-k, trained briefly: the time for a posterior does not depend on its quality."""
    task = nsm.tasks.get("gnk")
    settings = nsm.TrainingSettings(max_epochs=3)
    method = nsm.NSMBayesConj(task.prior, parameter_names=task.parameter_names)
    return method.append_simulations(*task.simulate(5_000, seed=0)).train(0, settings=settings, progress=False)


def contaminated(datasets: int, n: int, *, seed: int) -> Float[np.ndarray, "datasets n 1"]:
    """g-and-k data sets at the true parameters, with the first tenth of the rows moved by -50."""
    task = nsm.tasks.get("gnk")
    x = task.simulator(np.tile(task.theta_true, (datasets * n, 1)), seed=seed).reshape(datasets, n, 1)
    x[:, : n // 10] -= 50
    return x
