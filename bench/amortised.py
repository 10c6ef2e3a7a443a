"""NSM-Bayes-amortised compared with NSM-Bayes: a posterior, an update, another prior, and scaling with n."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nsmbayes as nsm
from bench.timing import Row, side_by_side

TINY = {"simulations": 500, "epochs": 1, "sizes": (20,), "draws": 50, "repeats": 1, "excess": False, "sets": 8}


def run(
    simulations: int = 100_000,
    epochs: int = 40,
    sizes: Sequence[int] = (10, 100, 1_000, 10_000, 100_000, 1_000_000),
    draws: int = 500,
    repeats: int = 3,
    excess: bool = True,
    sets: int = 200,
) -> list[Row]:
    """g-and-k data, a tenth of them at -50, at beta = 1; weights by distance alone, except for rows named excess."""
    task = nsm.tasks.get("gnk")
    theta, x = task.simulate(simulations, seed=100, progress=False)
    options: dict[str, Any] = {"calibration": None, "draws": draws}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # observations outside the simulations are intended here
        full = nsm.NSMBayes(task.prior, **options).append_simulations(theta, x)
        full.train(0, settings=nsm.TrainingSettings(max_epochs=epochs, schedule="cosine"), progress=False)
        own = nsm.NSMBayesAmortised(task.prior, **options).adopt(full)
        data = {n: [task.observe(n, seed=200 + i).x for i in range(repeats + 1)] for n in {*sizes, 100}}
        first: Any = own.build_posteriors([data[100][0]], excess=False, progress=False)[0]
        narrow = nsm.GaussianPrior(task.prior.mean, 0.5 * task.prior.covariance)
        contenders: dict[str, Callable[[int], Any]] = {}
        if excess:
            contenders = {
                "NSM-Bayes, excess, n = 100": lambda i: full.build_posterior(data[100][i]).mean,
                "NSM-Bayes-amortised, excess, n = 100": lambda i: own.build_posterior(data[100][i]).mean,
            }
        contenders |= {
            "update with 100 observations": lambda i: first.update(data[100][i]).mean,
            "another prior": lambda i: first.with_prior(narrow, seed=i).mean,
        }
        many = [[task.observe(100, seed=1000 * i + j).x for j in range(sets)] for i in range(repeats + 1)]
        contenders[f"{sets} data sets, n = 100"] = lambda i: own.build_posteriors(many[i], progress=False).mean
        for n in sizes:
            contenders[f"NSM-Bayes-amortised, n = {n:,}"] = lambda i, n=n: _one(own, data[n][i])
        return side_by_side(contenders, repeats=repeats)


def _one(method: nsm.NSMBayesAmortised, x: np.ndarray) -> np.ndarray:
    return method.build_posteriors([x], excess=False, progress=False).mean
