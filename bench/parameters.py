"""Scaling of training and the posterior of NSM-Bayes with the number of parameters."""

import warnings

import numpy as np

import nsmbayes as nsm
from bench.timing import Row, side_by_side

TINY = {"simulations": 300, "epochs": 2, "parameters": (1, 2), "n": 30, "repeats": 1}


def run(
    simulations: int = 20_000,
    epochs: int = 20,
    parameters: tuple[int, ...] = (1, 2, 4, 8, 15),
    n: int = 100,
    repeats: int = 3,
) -> list[Row]:
    """x = A theta + noise in two columns, with one observation in ten far away, at beta = 1."""
    rng = np.random.default_rng(1)  # different from the stream of theta
    settings = nsm.TrainingSettings(max_epochs=epochs, batch_size=512)
    rows = []
    for d in parameters:
        prior = nsm.GaussianPrior(np.zeros(d), np.ones(d))
        theta, matrix = prior.sample((simulations,), seed=0), rng.standard_normal((d, 2))
        x = theta @ matrix + rng.standard_normal((simulations, 2))
        method = nsm.NSMBayes(prior).append_simulations(theta, x)
        history = method.train(0, settings=settings, progress=False).history
        assert history is not None
        data = rng.standard_normal((repeats + 1, n, 2))
        data[:, : n // 10] += 50
        kept: list = []

        def call(i: int, method: nsm.NSMBayes = method, data: np.ndarray = data, kept: list = kept) -> None:
            kept.append(method.build_posterior(data[i], beta=1.0, seed=i))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # observations outside the range of the simulations
            (row,) = side_by_side({f"posterior, {d} parameters": call}, repeats=repeats)
        effective = float(np.median([posterior.result.ess_bulk.min() for posterior in kept]))
        row.detail.update(
            parameters=d,
            effective_draws_per_s=effective / row.later_s,
            compile_s=row.first_s - row.later_s,
            us_per_simulation=1e6 * (history.seconds - history.compile_seconds) / epochs / simulations,
        )
        rows.append(row)
    return rows
