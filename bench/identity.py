"""Difference between NSM-Bayes without a weight and NLE, by number and range of the noise levels."""

from dataclasses import replace
from typing import Any

import numpy as np

import nsmbayes as nsm
from bench.timing import Row, timed
from nsmbayes.experiments.identity import (
    Difference,
    difference,
    exact_gaussian,
    gaussian_grid,
    grid_posterior,
    nle_loss,
    unweighted_loss,
)
from nsmbayes.losses import DEFAULT_NOISE_LEVELS
from nsmbayes.surrogates import Density

TINY = {"simulations": 500, "epochs": 1, "n": 20, "datasets": 1, "points": 9, "most": 3}

_RANGES = ((DEFAULT_NOISE_LEVELS[0], DEFAULT_NOISE_LEVELS[-1]), (0.02, 50.0), (0.5, 2.0))


def run(
    simulations: int = 100_000, epochs: int = 40, n: int = 100, datasets: int = 5, points: int = 41, most: int = 25
) -> list[Row]:
    """Clean Gaussian data, the exact density and a trained network, with 7, 13 and at most `most` log-spaced levels.

    Every posterior is computed on a grid of theta and compared with that of NLE with the same surrogate.
    """
    task = nsm.tasks.get("gaussian")
    theta, x = task.simulate(simulations, seed=0, progress=False)
    nle = nsm.NLE(task.prior).append_simulations(theta, x)
    nle.train(0, settings=replace(nle.default_training(x.shape[1]), max_epochs=epochs), progress=False)
    data = [task.observe(n, seed=100 + i, contamination="none").x for i in range(datasets)]
    noise_levels = {
        f"{count} levels, {low:g} to {high:g}": tuple(np.geomspace(low, high, count).tolist())
        for low, high in _RANGES
        for count in sorted({min(most, k) for k in (7, 13, 25)})
    }
    rows = []
    for name, density in {"exact": exact_gaussian(), "network": nle.density}.items():
        for label, chosen in noise_levels.items():
            method = nsm.NSMBayes(task.prior, noise_levels=chosen).append_simulations(theta[:1000], x[:1000])
            rows.append(_row(f"{name} density, {label}", method.adopt(density), density, data, points))
    return rows


def _row(what: str, method: nsm.NSMBayes, density: Density, data: Any, points: int) -> Row:
    found: list[Difference] = []

    def compare(x: Any) -> None:
        grid = gaussian_grid(x, points=points)
        nle, ours = (
            grid_posterior(loss, method.prior, grid) for loss in (nle_loss(density, x), unweighted_loss(method, x))
        )
        found.append(difference(ours, nle))

    times = [timed(compare, x)[0] for x in data]
    off = [max(abs(ratio - 1) for ratio in one.covariance_ratios) for one in found]
    return Row(
        what=what,
        first_s=times[0],
        later_s=float(np.median(times[1:] or times)),
        repeats=len(times) - 1,
        detail={
            "levels": list(method.noise_levels),
            "mean_sds": max(one.mean_sds for one in found),
            "covariance_off": max(off),
            "each": [one._asdict() for one in found],
        },
    )
