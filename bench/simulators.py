"""Time and memory of the simulators of the tasks."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from bench.timing import Row, timed
from nsmbayes import tasks
from nsmbayes.tasks import radio

TINY = {"simulations": 300, "repeats": 1}


def run(simulations: int = 50_000, repeats: int = 2) -> list[Row]:
    """Draws of the prior with one simulation for each; every task in a separate process, to measure its memory."""
    rows = []
    for name in tasks.names():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(_measure, name, simulations, repeats).result())
    return rows


def _measure(name: str, simulations: int, repeats: int) -> Row:
    task = tasks.get(name)

    def simulate(seed: int) -> None:
        task.simulate(simulations, seed=seed, progress=False)

    at_rest = peak_gib()
    first, _ = timed(simulate, 0)
    later = [timed(simulate, seed) for seed in range(1, repeats + 1)]
    detail = {"peak_gib": peak_gib(), "peak_gib_before": at_rest}
    if name == "radio":
        arrivals = np.exp(task.prior.sample(simulations, seed=1)[:, 2]) / radio.DF
        detail |= {"arrivals_mean": float(arrivals.mean()), "arrivals_most": float(arrivals.max())}
    return Row(
        what=f"{simulations:,} simulations of {name}",
        first_s=first,
        later_s=float(np.median([wall for wall, _ in later])),
        later_cpu_s=float(np.median([cpu for _, cpu in later])),
        repeats=repeats,
        detail=detail,
    )


def peak_gib() -> float | None:
    """Peak memory of this process so far, or None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
