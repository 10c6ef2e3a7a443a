"""Time to build the posterior of NSM-Bayes for three-dimensional observations."""

import warnings
from dataclasses import replace
from typing import Any

import nsmbayes as nsm
from bench.timing import Row, side_by_side

TINY = {"simulations": 500, "epochs": 1, "n": 10, "levels": 1, "chains": 2, "draws": 10, "repeats": 1}


def run(
    simulations: int = 50_000,
    epochs: int = 40,
    n: int = 100,
    levels: int = 6,
    chains: int = 4,
    draws: int = 250,
    repeats: int = 3,
) -> list[Row]:
    """SIR data with undercounting, at beta = 1 and calibrated."""
    task = nsm.tasks.get("sir")
    theta, x = task.simulate(simulations, seed=100, progress=False)
    options: dict[str, Any] = {"grid_steps": task.grid_steps, "chains": chains, "draws": draws}
    nle = nsm.NLE(task.prior, **options).append_simulations(theta, x)
    nle.train(0, settings=replace(nle.default_training(x.shape[1]), max_epochs=epochs), progress=False)
    noise_levels = tuple(0.2 * 2.0**i for i in range(levels))
    robust = nsm.NSMBayes(task.prior, noise_levels=noise_levels, **options).adopt(nle)
    data = [task.observe(n, seed=100 + i).x for i in range(repeats + 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # observations outside the simulations; chains of ten draws
        return side_by_side(
            {
                "NLE": lambda i: nle.build_posterior(data[i], seed=i),
                "NSM-Bayes, beta = 1": lambda i: robust.build_posterior(data[i], beta=1.0, seed=i),
                "NSM-Bayes, calibrated": lambda i: robust.build_posterior(data[i], seed=i),
            },
            repeats=repeats,
        )
