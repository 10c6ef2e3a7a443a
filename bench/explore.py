"""Latency of the explore page in a browser: from a pointer position to the drawn posterior for it."""

import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import nsmbayes as nsm
from bench.timing import Row
from nsmbayes._internal.columns import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import browser  # pyright: ignore[reportMissingImports]

TINY = {"simulations": 1000, "epochs": 1, "n": 30, "moves": 3, "drags": 1}
MISSING = f"the benchmark needs a browser: {browser.missing()}" if browser.missing() else ""
_MODELS = {"gnk": nsm.NSMBayesConj, "sir": nsm.NSMBayesAmortised}
_PIXELS = 150  # length of a drag


def run(simulations: int = 20_000, epochs: int = 20, n: int = 100, moves: int = 40, drags: int = 4) -> list[Row]:
    """Drag rows of contaminated data in a headless Chromium, on a page served by the command line.

    One column with NSM-Bayes-conj, and three columns with NSM-Bayes-amortised. The pointer moves every 40 ms; a
    position is skipped if the answer to the previous one is not there yet, and the waiting time of the next position is
    included. Processor time is that of server, browser and its driver, per answer; on an idle machine, wall time is
    hardly longer.
    """
    return [_row(name, kind, simulations, epochs, n, moves, drags) for name, kind in _MODELS.items()]


def _row(name: str, kind: Any, simulations: int, epochs: int, n: int, moves: int, drags: int) -> Row:
    task = nsm.tasks.get(name)
    with tempfile.TemporaryDirectory() as folder:
        model, data = Path(folder) / "model", Path(folder) / "data.csv"
        method = kind(task.prior, x_names=task.x_names, grid_steps=task.grid_steps)
        theta, x = task.simulate(simulations, seed=0, progress=False)
        method.append_simulations(theta, Table(x, task.x_names))
        settings = method.training if kind is nsm.NSMBayesConj else method.default_training(x.shape[1])
        method.train(0, settings=replace(settings, max_epochs=epochs), progress=False)
        method.save(model)
        observed = [",".join(map(repr, row)) for row in task.observe(n, seed=1).x.tolist()]
        data.write_text("\n".join([",".join(task.x_names), *observed]) + "\n")
        with browser.served(model, data) as address, browser.browser() as driver:
            browser.opened(driver, address)
            found, cpu = _latencies(driver, n, moves, drags)
            version = driver.capabilities["browserVersion"]
    seconds = np.asarray(found) / 1e3
    quantiles = dict(zip(("fastest_s", "90_percent_s", "slowest_s"), np.quantile(seconds, (0, 0.9, 1)), strict=True))
    return Row(
        what=f"{name}, {method.label}, {n} rows of {x.shape[1]}",
        first_s=float(seconds[0]),
        later_s=float(np.median(seconds)),
        later_cpu_s=cpu / len(found),
        repeats=len(seconds),
        detail={key: float(value) for key, value in quantiles.items()} | {"chromium": version},
    )


def _latencies(driver: Any, n: int, moves: int, drags: int) -> tuple[list[float], float]:
    """Latencies for rows spread over the data, and the processor time of server and browser during the drags.

    Between two drags everything is refitted.
    """
    cpu = 0.0
    for k in range(drags):
        row = k * n // drags
        place, _ = driver.execute_script(browser.PLACE, row)
        before = _cpu_seconds()
        browser.drag(driver, row, _PIXELS if place < 2 * _PIXELS else -_PIXELS, steps=moves, pause=0.03)
        cpu += _cpu_seconds() - before
        browser.wait(driver, "return document.getElementById('nsm-status').innerText.startsWith('At rest')")
    return browser.latencies(driver), cpu


def _cpu_seconds() -> float:
    """Processor time of all child processes."""
    import psutil

    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found
