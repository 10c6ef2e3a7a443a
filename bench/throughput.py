"""Posteriors per second of very many small data sets, and which step of `build_posteriors` takes the time."""

import cProfile
import pstats
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import nsmbayes as nsm
from bench.timing import Row, timed
from nsmbayes.methods.line_targets import together

TINY = {"simulations": 500, "epochs": 1, "sets": (8,), "n": 20, "draws": (50,), "calibrated": (8,), "repeats": 1}

STEPS = {
    "checks of the data": "observed",
    "location and scatter": "_centres",
    "starts": "starts",
    "losses": "line_losses",
    "sampling": "sample_many",
    "calibration": "calibrate_many",
    "check of the surrogate": "check_many",
    "collection": "collected",
}
"""Each step by the name of a function; seconds are those of all its calls, in a run of its own under a profiler."""


def run(
    simulations: int = 50_000,
    epochs: int = 30,
    sets: Sequence[int] = (1_000,),
    sets_on_gpu: Sequence[int] = (1_000, 8_000),
    n: int = 100,
    draws: Sequence[int] = (500, 125),
    calibrated: Sequence[int] = (1_000,),
    calibrated_on_gpu: Sequence[int] = (1_000, 4_000),
    repeats: int = 3,
) -> list[Row]:
    """g-and-k data, a tenth of them at -50; four chains of so many `draws` at beta = 1, and at calibrated rates."""
    gpu = jax.default_backend() != "cpu"
    task = nsm.tasks.get("gnk")
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # observations outside the simulations are the point here
        teacher = nsm.NSMBayes(task.prior)
        teacher.append_simulations(*task.simulate(simulations, seed=100, progress=False))
        teacher.train(0, settings=nsm.TrainingSettings(max_epochs=epochs, schedule="cosine"), progress=False)
        method = nsm.NSMBayesAmortised(task.prior).adopt(teacher)
        fixed, free = (sets_on_gpu, calibrated_on_gpu) if gpu else (sets, calibrated)
        data = _data(task, max(*fixed, *free), n, repeats)
        for count in fixed:
            for each in draws:
                name = f"{count:,} posteriors of {4 * each:,} draws, beta = 1"
                rows.append(_measured(name, method, data, count, repeats, draws=each, beta=1.0))
        for count in free:
            name = f"{count:,} posteriors of {4 * draws[0]:,} draws, calibrated"
            rows.append(_measured(name, method, data, count, repeats, draws=draws[0]))
    return rows


def _data(task: nsm.tasks.Task, sets: int, n: int, repeats: int) -> list[list[np.ndarray]]:
    with jax.default_device(jax.devices("cpu")[0]):  # one small data set after the other, which a GPU is bad at
        return [[task.observe(n, seed=10_000 * i + j).x for j in range(sets)] for i in range(min(repeats, 2) + 1)]


def _measured(what: str, method: Any, data: list[list[np.ndarray]], count: int, repeats: int, **options: Any) -> Row:
    def build(i: int) -> Any:
        return method.build_posteriors(data[i % len(data)][:count], progress=False, **options)

    first, _ = timed(build, 0)
    later = [timed(build, i) for i in range(1, repeats + 1)]
    seconds = float(np.median([wall for wall, _ in later]))
    batch = build(1)
    detail: dict[str, Any] = {
        "per_second": count / seconds,
        "fastest_per_second": count / min(wall for wall, _ in later),
        "least_ess": float(batch.ess.min(axis=1).min()),
        "median_ess": float(np.median(batch.ess.min(axis=1))),
        "device": str(jax.devices()[0].device_kind),
    }
    if count <= together(count):  # otherwise several threads work at once, which a profiler does not see
        detail["steps_s"] = _steps(lambda: build(2))
    cpu = float(np.median([cpu for _, cpu in later]))
    return Row(what=what, first_s=first, later_s=seconds, later_cpu_s=cpu, repeats=repeats, detail=detail)


def _steps(call: Callable[[], Any]) -> dict[str, float]:
    """Seconds of each step, and of all together, in one call under a profiler: a little more than without it."""
    profile = cProfile.Profile()
    profile.runcall(call)
    stats: Any = pstats.Stats(profile)
    found = {(file, name): cumulative for (file, _, name), (_, _, _, cumulative, _) in stats.stats.items()}
    package = nsm.__name__
    seconds = {
        step: sum((s for (file, name), s in found.items() if name == function and package in file), 0.0)
        for step, function in STEPS.items()
    }
    return {step: round(s, 4) for step, s in seconds.items()} | {"all": round(float(stats.total_tt), 4)}
