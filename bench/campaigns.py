"""Cost of a campaign: per simulation in the same process, in one and in two processes, and streamed for training."""

import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bench.simulators import peak_gib
from bench.timing import Row, timed
from nsmbayes import MDN, NLE, BatchSimulator, GaussianPrior, NumpySimulator, TrainingSettings, simulate

TINY = {"rows": 200, "batch": 100, "slow_rows": 20, "streamed": 2_000, "repeats": 1}
_COLUMNS = 10
_TIMES = 4  # the second size has this multiple of the simulations


def run(
    rows: int = 20_000, batch: int = 1_000, slow_rows: int = 400, streamed: int = 10_000_000, repeats: int = 3
) -> list[Row]:
    """Overhead per simulation, speed-up by a second process at 10 ms per simulation, and memory for 10 columns of x."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured = [_overhead(folder, rows, batch, repeats)]
        for what, simulator in (("10 ms of work", _slow), ("10 ms of waiting", _waiting)):
            measured += _processes(folder, what, simulator, slow_rows, repeats)
        for what in (_store, _train):  # each in a separate process, to measure its memory
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                measured.append(pool.submit(what, folder / "large.zarr", streamed).result())
    return measured


def _trivial(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
    return theta


def _slow(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
    end = time.process_time() + 0.01  # of work, not of waiting
    while time.process_time() < end:
        pass
    return theta


def _waiting(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
    time.sleep(0.01)  # like a program, disk or instrument: measures the cost of distribution, even on a busy machine
    return theta


def _wide(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
    return np.repeat(theta, _COLUMNS // 2, axis=1) + rng.standard_normal((len(theta), _COLUMNS))


_PRIOR = GaussianPrior([0.0, 0.0], [1.0, 1.0])


def _campaign(folder: Path, function, m: int, **options) -> None:
    out = folder / "c.zarr"
    shutil.rmtree(out, ignore_errors=True)
    simulate(NumpySimulator(function), _PRIOR, m, out=out, progress=False, **options)


def _overhead(folder: Path, rows: int, batch: int, repeats: int) -> Row:
    """Time of a simulator that does nothing, which is all overhead."""
    first, _ = timed(_campaign, folder, _trivial, 10)  # imports, and the first store
    times = [timed(lambda: _campaign(folder, _trivial, rows, batch=batch)) for _ in range(repeats)]
    wall, cpu = (float(np.median([pair[i] for pair in times])) for i in (0, 1))
    return Row(
        what=f"{rows:,} simulations that do nothing, in process, batches of {batch:,}",
        first_s=first,
        later_s=wall,
        later_cpu_s=cpu,
        repeats=repeats,
        detail={"us_per_simulation": 1e6 * wall / rows, "cpu_us_per_simulation": 1e6 * cpu / rows},
    )


def _processes(folder: Path, what: str, simulator: Any, rows: int, repeats: int) -> list[Row]:
    """Time one process and two processes in turn, each at two sizes: the difference excludes the start of processes."""
    times: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(repeats):
        for workers, found in times.items():
            few, many = (
                timed(lambda m=m, n=workers: _campaign(folder, simulator, m, batch=10, executor=n))[0]
                for m in (rows, _TIMES * rows)
            )
            found.append((many, (many - few) / ((_TIMES - 1) * rows)))
    each = {workers: float(np.median([pair[1] for pair in found])) for workers, found in times.items()}
    return [
        Row(
            what=f"{_TIMES * rows:,} simulations, {what} each, by {workers} process{'es' * (workers > 1)}",
            first_s=found[0][0],
            later_s=float(np.median([pair[0] for pair in found])),
            repeats=repeats,
            detail={"ms_per_simulation": 1e3 * each[workers], "times_as_fast_as_one": each[1] / each[workers]},
        )
        for workers, found in times.items()
    ]


def _store(out: Path, m: int) -> Row:
    simulator = BatchSimulator(_wide, size=1_000)
    wall, _ = timed(lambda: simulate(simulator, _PRIOR, m, out=out, progress=False))
    detail = {"peak_gib": peak_gib(), "us_per_simulation": 1e6 * wall / m}
    return Row(
        what=f"{m:,} simulations of {_COLUMNS} columns stored", first_s=wall, later_s=wall, repeats=1, detail=detail
    )


def _train(out: Path, m: int) -> Row:
    method = NLE(_PRIOR, surrogate=MDN(hidden=(32, 32))).append_simulations(out, stream=True)
    settings = TrainingSettings(max_epochs=1, batch_size=4096 if m > 100_000 else 64)
    wall, _ = timed(lambda: method.train(settings=settings, progress=False))
    detail = {"peak_gib": peak_gib()}
    return Row(
        what=f"one epoch of NLE over {m:,} stored simulations", first_s=wall, later_s=wall, repeats=1, detail=detail
    )
