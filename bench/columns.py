"""Training cost of a mixture density network by number of columns of x, with factors of precisions or covariances."""

import time

import numpy as np

import nsmbayes as nsm
from bench.timing import Row

TINY = {"simulations": 300, "epochs": 2, "columns": (2, 6), "covariance_up_to": 2}
_PARAMETERS = 3


def run(
    simulations: int = 20_000,
    epochs: int = 5,
    columns: tuple[int, ...] = (1, 2, 4, 6, 8, 12, 20, 30),
    covariance_up_to: int = 6,
) -> list[Row]:
    """Seconds for one epoch, x = A theta + noise with a random A; only `first_s` includes compilation."""
    rng = np.random.default_rng(1)  # different from the stream of theta
    prior = nsm.GaussianPrior(np.zeros(_PARAMETERS), np.ones(_PARAMETERS))
    theta = prior.sample((simulations,), seed=0)
    settings = nsm.TrainingSettings(learning_rate=2e-3, weight_decay=0.0, batch_size=512, max_epochs=epochs)
    rows = []
    for d in columns:
        x = theta @ rng.standard_normal((_PARAMETERS, d)) + rng.standard_normal((simulations, d))
        for factor in ("precision", "covariance")[: 2 if d <= covariance_up_to else 1]:
            surrogate = nsm.MDN(factor=factor, hidden=(64, 64, 64))
            method = nsm.NLE(prior, surrogate=surrogate).append_simulations(theta, x)
            start = time.perf_counter()
            history = method.train(0, settings=settings, progress=False).history
            assert history is not None
            epoch_s = (history.seconds - history.compile_seconds) / epochs
            rows.append(
                Row(
                    what=f"{d} columns, factors of the {factor}s",
                    first_s=time.perf_counter() - start,
                    later_s=epoch_s,
                    repeats=epochs,
                    detail={
                        "first_is": f"{epochs} epochs with compilation",
                        "later_is": "one epoch",
                        "columns": d,
                        "factor": factor,
                        "compile_s": history.compile_seconds,
                        "us_per_simulation": 1e6 * epoch_s / simulations,
                        "validation_loss": float(history.validation_loss[-1]),
                    },
                )
            )
    return rows
