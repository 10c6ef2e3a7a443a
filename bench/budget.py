"""Scaling of training time with the number of simulations."""

import time

import nsmbayes as nsm
from bench.timing import Row

TINY = {"simulations": (300, 600), "epochs": 2}


def run(simulations: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000), epochs: int = 5) -> list[Row]:
    """Seconds for one epoch of NSM-Bayes on g-and-k, with the default network; only `first_s` includes compilation."""
    task = nsm.tasks.get("gnk")
    settings = nsm.TrainingSettings(max_epochs=epochs, batch_size=512)
    rows = []
    for m in simulations:
        method = nsm.NSMBayes(task.prior).append_simulations(*task.simulate(m, seed=0, progress=False))
        start = time.perf_counter()
        history = method.train(0, settings=settings, progress=False).history
        assert history is not None
        rows.append(
            Row(
                what=f"one epoch of {m:,} simulations",
                first_s=time.perf_counter() - start,
                later_s=(history.seconds - history.compile_seconds) / epochs,
                repeats=epochs,
                detail={
                    "first_is": f"{epochs} epochs with compilation",
                    "simulations": m,
                    "compile_s": history.compile_seconds,
                },
            )
        )
    return rows
