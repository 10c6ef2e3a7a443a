"""Kills at any moment, of real processes: what was there before is there afterwards, or what was being written, whole.

Four kinds: while a model is overwritten, while one is trained and saved, during `nsmbayes infer --out`, and during
`nsmbayes reproduce`, which is then taken up again until it ends, and compared with a run that nobody killed.
"""

import csv
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import nsmbayes as nsm
from attacks.result import Result

ROOT = Path(__file__).parents[1]
_SAVE = """
import sys
import nsmbayes as nsm
one, other = nsm.load(sys.argv[1]), nsm.load(sys.argv[2])
print("ready", flush=True)
while True:
    one.save(sys.argv[3], overwrite=True)
    other.save(sys.argv[3], overwrite=True)
"""
_TRAIN = """
import sys
import nsmbayes as nsm
task = nsm.tasks.get("gnk")
theta, x = task.simulate(500, seed=0, progress=False)
for seed in range(1000):
    method = nsm.NSMBayesConj(task.prior, hidden=8, noise_levels=(0,)).append_simulations(theta, x)
    method.train(seed, settings=nsm.TrainingSettings(max_epochs=20), progress=False)
    method.save(sys.argv[1], overwrite=True)
    if seed == 0:
        print("ready", flush=True)
"""
_COMMAND = """
import sys
from nsmbayes import TrainingSettings
from nsmbayes.cli import main
from nsmbayes.experiments import Effort
print("ready", flush=True)
sys.exit(main(sys.argv[1:], effort=Effort(training=TrainingSettings(max_epochs=1))))
"""


def run(count: int, seed: int) -> Result:
    """Kill `count` times: of each kind a quarter, all kinds side by side."""
    result, kinds = Result(), (saves, trainings, inferences, experiments)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(len(kinds)) as threads:
        running = []
        for number, kind in enumerate(kinds):
            folder = Path(scratch) / kind.__name__
            folder.mkdir()
            running.append(threads.submit(kind, result, folder, random.Random(4 * seed + number), count // 4))
        for each in running:
            each.result()
    result.detail["tried"] = 4 * (count // 4)
    return result


def kill(script: str, arguments: list[Any], rng: random.Random, *, within: float) -> bool:
    """Start a script, and kill it some time after it is ready; whether it was still running."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"  # a script that fails would look like one that was killed
        try:
            process.wait(rng.uniform(0, within))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
    return False


def saves(result: Result, folder: Path, rng: random.Random, count: int) -> None:
    """While a model is overwritten by another, again and again."""
    old = ROOT / "tests" / "data" / "models-format-1"
    models = [old / name for name in ("conj", "conj-paper")]
    place = nsm.load(old / "conj").save(folder / "model")
    for i in range(count):
        assert kill(_SAVE, [*models, place], rng, within=1.0)  # it never ends by itself
        _loads(result, "save", i, place)


def trainings(result: Result, folder: Path, rng: random.Random, count: int) -> None:
    """While networks are trained one after the other, and each is saved in the place of the one before."""
    for i in range(count):
        place = folder / f"model-{i % 3}"
        assert kill(_TRAIN, [place], rng, within=8.0)
        _loads(result, "train", i, place)


def _loads(result: Result, what: str, i: int, place: Path) -> None:
    try:
        nsm.load(place)
        result.outcomes[f"{what}: whole"] += 1
    except Exception as error:
        result.fail(f"{what} {i}", f"{type(error).__name__}: {error}")


def inferences(result: Result, folder: Path, rng: random.Random, count: int) -> None:
    """During `nsmbayes infer --out`: every file that is there is whole."""
    task, data = nsm.tasks.get("gnk"), folder / "data.csv"
    np.savetxt(data, task.observe(60, seed=1).x, delimiter=",", header="x", comments="")
    model = ROOT / "tests" / "data" / "models-format-1" / "conj"
    options = ["infer", model, data, "--draws", 2000]
    seconds = [_finish([*options, "--out", folder / name])[1] for name in ("first", "whole")][1]  # nothing compiled
    for i in itertools.count():
        if result.outcomes["infer: killed"] == count:
            break
        out = folder / f"out-{i}"
        started = time.monotonic()
        killed = kill(_COMMAND, [*options, "--out", out], rng, within=seconds)
        if not killed:  # it takes less time than it did
            seconds = min(seconds, time.monotonic() - started)
        result.outcomes["infer: killed" if killed else "infer: ended before the kill"] += 1
        try:
            found = {path.name for path in out.glob("*") if path.suffix != ".tmp"}
            if "posterior.json" in found:
                json.loads((out / "posterior.json").read_text())
            if "draws.csv" in found:
                assert len(list(csv.reader((out / "draws.csv").open()))) == 2001
            if "report.html" in found:
                assert (out / "report.html").read_text().endswith("</html>")
            assert killed or {"posterior.json", "draws.csv", "report.html"} <= found
            result.outcomes["infer: every file whole" if found else "infer: nothing yet"] += 1
        except (ValueError, AssertionError) as error:
            result.fail(f"infer {i}", f"{type(error).__name__}: {error}")


def experiments(result: Result, folder: Path, rng: random.Random, count: int) -> None:
    """During `nsmbayes reproduce`: taken up again to the end, it says what a run says that nobody killed."""
    options = ["reproduce", "gnk", "--methods", "nsm-bayes-conj", "--simulations", 300, "--repeats", 3]
    options += ["--workers", 1, "--quiet", "--resume", "--observations", 30]
    _finish([*options, "--out", folder / "first"])  # so that nothing is compiled later
    said, seconds = _finish([*options, "--out", folder / "whole"])
    expected = _numbers(said, folder / "whole")
    for i in itertools.count():
        if result.outcomes["reproduce: killed"] == count:
            break
        out, killed = folder / f"cut-{i}", True
        while killed and result.outcomes["reproduce: killed"] < count:
            stored = len(list(out.glob("*/seed-*.json")))
            started = time.monotonic()
            killed = kill(_COMMAND, [*options, "--out", out], rng, within=seconds)
            if not killed:
                seconds = min(seconds, time.monotonic() - started)
            result.outcomes["reproduce: killed" if killed else "reproduce: ended before the kill"] += 1
            result.outcomes["reproduce: killed, with repeats stored before"] += killed and stored > 0
        said, _ = _finish([*options, "--out", out])
        if said.returncode == 0 and _numbers(said, out) == expected:
            result.outcomes["reproduce: taken up to the end, identical"] += 1
        else:
            result.fail(f"reproduce {i}", f"exit status {said.returncode}: {said.stderr[-300:]}")


def _finish(arguments: list[Any]) -> tuple[subprocess.CompletedProcess[str], float]:
    """What a command says that nobody kills, and how long it takes."""
    command, start = [sys.executable, "-c", _COMMAND, *map(str, arguments)], time.monotonic()
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True), time.monotonic() - start


def _numbers(said: subprocess.CompletedProcess[str], folder: Path) -> list[Any]:
    """All rows without their times."""
    if said.returncode != 0:
        return []
    timed = ("train_s", "infer_s", "compiled")
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("*/seed-*.json"))]
    return [{k: v for k, v in row.items() if k not in timed} for each in documents for row in each["rows"]]
