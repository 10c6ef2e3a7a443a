"""The study behind docs/excess.md: `python docs/make_excess.py run FOLDER`, `store FOLDER`; `table` prints it.

Data sets of eleven problems (`excess_problems`) with every kind of outliers. A row is a data set: mean squared error
and coverage of NSM-Bayes as it is by default, and of the oracle, which is NLE on the good rows; on clean data also of
NSM-Bayes without the factor by number. `run` trains one network per problem and shares the data sets out to processes
of one core each. It stops after `--minutes`, and goes on where it stopped when it is called again: FOLDER has the
networks and the rows, one JSON document per line. `--part alternatives` compares other priors for outliers. With
`--gpu` the processes share a GPU.
"""

import argparse
import json
import multiprocessing
import os
import time
import traceback
import warnings
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from excess_problems import CLEAN, CURVE, EVERYWHERE, NAMES, OWN, kinds, network_path, observe, trained

STORED = Path(__file__).parent / "excess-study.json"
SEEDS = {"cells": 379, "curve": 359, "alternatives": 61}
IN_LINE = ("gaussian", "student", "groups", "gumbel", "gnk")
PARTS = {"cells": tuple(NAMES), "curve": (*IN_LINE, "ring", "sir"), "alternatives": IN_LINE}
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "default": {},
    "cost 0.05": {"cost": 0.05},
    "cost 1": {"cost": 1.0},
    "clean 0": {"clean": 0.0},
    "clean 0.5": {"clean": 0.5},
}
TRIED = (CLEAN, "10 % near", "10 % at 4", "20 % in a cluster at 9", "10 % stuck")
NO_ROW, NO_NETWORK = 300.0, 1200.0  # seconds, after which a data set or a network is given up; the first row compiles
FEWER = {"ring": 30, "sir": 24, "radio": 24, "pk": 16, "linear": 12}  # data sets of a kind; otherwise 40, curves half
COSTLY = {"linear": 15.0, "pk": 12.0, "sir": 8.0, "radio": 7.0, "ring": 5.0}  # seconds a row, as a first guess


class Job(NamedTuple):
    """The data sets of one problem that share their clean rows."""

    part: str
    problem: str
    repeat: int
    kinds: tuple[str, ...]
    shift: int


def methods_for(part: str, kind: str, network: Any) -> dict[str, Any]:
    """The methods that a data set is given to, by label."""
    import nsmbayes as nsm

    def method(**options: Any) -> Any:
        return nsm.NSMBayes(network.prior, grid_steps=network.grid_steps, **options).adopt(network)

    found = {"default": method()}
    if part == "alternatives":
        found = {
            label: method(calibration=None, excess=nsm.weights.Excess(**options))
            for label, options in ALTERNATIVES.items()
        }
    if part == "alternatives" or kind.endswith(CLEAN):
        found["none"] = method(excess=None, **({"calibration": None} if part == "alternatives" else {}))
    return found | {"oracle": nsm.NLE(network.prior, grid_steps=network.grid_steps).adopt(network)}


def measure(job: Job, kind: str, network: Any) -> dict[str, Any]:
    """One row."""
    seed = SEEDS[job.part] + job.shift
    x, bad, truth = observe(job.problem, kind, job.repeat, seed)
    row: dict[str, Any] = {"part": job.part, "problem": job.problem, "kind": kind, "repeat": job.repeat, "seed": seed}
    for label, method in methods_for(job.part, kind, network).items():
        start = time.perf_counter()
        posterior = method.build_posterior(x[~bad] if label == "oracle" else x, seed=job.repeat)
        found = {
            "seconds": time.perf_counter() - start,
            "mse": posterior.mse(truth),
            "centre": float(((posterior.mean - truth) ** 2).sum()),
            "covered": bool(posterior.contains(truth)),
            "beta": float(posterior.beta),
        }
        suspects = getattr(posterior, "suspects", None)
        if suspects is not None:
            factor, weights = suspects.factor.values, np.asarray(posterior.weights)
            found |= {
                "good": float(factor[~bad].mean()),
                "below_half": float((factor[~bad] < 0.5).mean()),
                "below_tenth": float((weights[~bad] < 0.1).mean()),
                "bad": float(weights[bad].mean()) if bad.any() else 0.0,
                "wider": float(suspects.wider),
            }
        row[label] = {name: round(value, 6) if isinstance(value, float) else value for name, value in found.items()}
    return row


def work(core: int, folder: Path, pipe: Connection) -> None:
    """One process: a job in, its rows out."""
    if hasattr(os, "sched_setaffinity") and os.environ.get("JAX_PLATFORMS") == "cpu":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    warnings.simplefilter("ignore")
    networks: dict[str, Any] = {}
    while True:
        job: Job = pipe.recv()
        if job.problem not in networks:
            networks[job.problem] = trained(job.problem, folder, job.shift)
        for kind in job.kinds:
            try:
                row = measure(job, kind, networks[job.problem])
            except Exception:  # a data set that fails is a result
                row = {"part": job.part, "problem": job.problem, "kind": kind, "repeat": job.repeat}
                row["failed"] = traceback.format_exc()[-500:]
            pipe.send(row)
        pipe.send(None)


class Worker:
    """A process, and what it is doing."""

    def __init__(self, core: int, folder: Path):
        self.core, self.folder = core, folder
        self.job: Job | None = None
        self.last, self.limit, self.problem, self.done = time.monotonic(), NO_ROW, "", 0
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=work, args=(core, folder, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, job: Job) -> None:
        """Begin a job."""
        self.job, self.problem, self.last, self.done = job, job.problem, time.monotonic(), 0
        self.limit = NO_ROW if network_path(self.folder, job.problem, job.shift).exists() else NO_NETWORK
        self.pipe.send(job)

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def all_jobs(options: argparse.Namespace, done: set[tuple[Any, ...]]) -> list[Job]:
    """What is left to do, the first data sets of all problems first."""
    jobs, problems = [], options.problems.split(",")
    for repeat in range(options.repeats):
        for part in options.part or ["cells", "curve"]:
            for problem in PARTS[part]:
                wanted = TRIED if part == "alternatives" else kinds(problem, part)
                left = tuple(kind for kind in wanted if (part, problem, kind, repeat) not in done)
                most = FEWER.get(problem, 40) // (2 if part == "curve" else 1)
                if left and problem in problems and repeat < most:
                    jobs.append(Job(part, problem, repeat, left, options.shift))
    return jobs


def choose(jobs: list[Job], worker: Worker, workers: list[Worker], folder: Path) -> Job | None:
    """The next job of a worker: of its problem if there is one, else of that with most work left for each worker.

    While a network is being trained, its problem waits.
    """
    busy = [other.problem for other in workers if other.job is not None]
    untrained = {job.problem for job in jobs if not network_path(folder, job.problem, job.shift).exists()}
    left: dict[str, float] = {}
    for job in jobs:
        left[job.problem] = left.get(job.problem, 0) + len(job.kinds) * COSTLY.get(job.problem, 2.0)
    can = {
        name: work / (1 + busy.count(name)) for name, work in left.items() if name not in untrained or name not in busy
    }
    if not can:
        return None
    # networks first, those of the longest work before others
    first = [name for name in can if name in untrained]
    mine = worker.problem if worker.problem in can and not first else max(first or can, key=lambda name: can[name])
    return next(job for job in jobs if job.problem == mine)


def run(options: argparse.Namespace) -> None:
    """Go on with the study until it is complete or the time is over."""
    folder: Path = options.folder
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if not options.gpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("NSMBAYES_CACHE", str(folder.absolute() / "compiled"))
    (folder / "networks").mkdir(parents=True, exist_ok=True)
    multiprocessing.set_start_method("spawn")
    path, end = folder / "rows.jsonl", time.monotonic() + 60 * options.minutes
    rows = read(path)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    jobs = all_jobs(options, {(r["part"], r["problem"], r["kind"], r["repeat"]) for r in rows})
    pool, count = [Worker(core, folder) for core in range(options.workers)], 0
    with path.open("a") as file:
        while time.monotonic() < end and (jobs or any(one.job for one in pool)):
            for one in pool:
                if one.job is None and (job := choose(jobs, one, pool, folder)):
                    jobs.remove(job)
                    one.give(job)
            ready = wait([one.pipe for one in pool], timeout=1.0)
            for i, one in enumerate(pool):
                if one.job is None:
                    continue
                try:
                    row = one.pipe.recv() if one.pipe in ready else ()
                except EOFError:
                    row = {"failed": "the process died"}
                if row == () and time.monotonic() - one.last > one.limit:
                    row = {"failed": f"no result after {one.limit:.0f} s"}
                if row is None:
                    one.job = None
                elif row:
                    if "part" not in row:  # what is left of the job is for another process
                        job = one.job
                        row |= {"part": job.part, "problem": job.problem, "repeat": job.repeat}
                        row["kind"] = job.kinds[min(one.done, len(job.kinds) - 1)]
                        if job.kinds[one.done + 1 :]:
                            jobs.insert(0, job._replace(kinds=job.kinds[one.done + 1 :]))
                        one.stop()
                        pool[i] = Worker(one.core, folder)
                    else:
                        one.done, one.last, one.limit = one.done + 1, time.monotonic(), NO_ROW
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    count += 1
    for one in pool:
        one.stop()
    print(f"{count} rows in this call, {len(rows) + count} in all; {sum(len(job.kinds) for job in jobs)} not begun")


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the data sets of every problem and kind, for every variant."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["problem"], row["kind"]), []).append(row)
    found = []
    for (problem, kind), every in cells.items():
        some = [row for row in every if "failed" not in row]
        cell: dict[str, Any] = {"problem": problem, "kind": kind, "datasets": len(some)}
        cell["failed"] = len(every) - len(some)
        for label in [label for label, value in some[0].items() if isinstance(value, dict)] if some else []:
            names = some[0][label]
            cell[label] = {name: float(f"{np.mean([row[label][name] for row in some]):.4g}") for name in names}
            cell[label]["median_seconds"] = float(np.median([row[label]["seconds"] for row in some]).round(2))
        found.append(cell)
    problems = list(NAMES)
    order = [CLEAN, OWN, *kinds("gnk", "cells"), *CURVE, *EVERYWHERE, *kinds("counts", "cells")]
    return sorted(found, key=lambda cell: (problems.index(cell["problem"]), order.index(cell["kind"])))


def table(cells: list[dict[str, Any]]) -> str:
    """A table of the page."""
    lines = [
        "| problem | data | data sets | with excess | oracle | ratio | good rows keep |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        ours, oracle = cell["default"], cell["oracle"]
        shown = [f"{each['mse']:.3g} ({each['covered']:.0%})".replace("%", " %") for each in (ours, oracle)]
        lines.append(
            f"| {NAMES[cell['problem']]} | {cell['kind']} | {cell['datasets']} | {shown[0]} | {shown[1]} | "
            f"{ours['mse'] / oracle['mse']:.2f} | {ours['good']:.3f} |"
        )
    return "\n".join(lines)


def clean_table(cells: list[dict[str, Any]]) -> str:
    """Clean data with and without the factor: error, and the seconds of a posterior on one core."""
    lines = [
        "| problem | data | error, relative | good rows keep | seconds without | with |",
        "|---|---|---|---|---|---|",
    ]
    for cell in cells:
        if "none" in cell:
            ours, none = cell["default"], cell["none"]
            lines.append(
                f"| {NAMES[cell['problem']]} | {cell['kind']} | {ours['mse'] / none['mse']:.3f} | {ours['good']:.4f} | "
                f"{none['median_seconds']:.1f} | {ours['median_seconds']:.1f} |"
            )
    return "\n".join(lines)


def store(folder: Path) -> None:
    """Summarise the rows of a folder for the page."""
    rows = read(folder / "rows.jsonl")
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    seeds = {part: sorted({row["seed"] for row in rows if row["part"] == part}) for part in PARTS}
    stored["about"] = f"means over data sets, n = 100 (counts 300), one core per process; seeds {seeds}"
    for part in PARTS:
        if some := [row for row in rows if row["part"] == part]:
            stored[part] = summarise(some)
    STORED.write_text(json.dumps(stored) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "store", "table"])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/excess"))
    parser.add_argument("--part", action="append", choices=list(PARTS), help="by default cells and curve")
    parser.add_argument("--problems", default=",".join(NAMES))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--gpu", action="store_true", help="let the processes use the device that JAX chooses")
    parser.add_argument("--shift", type=int, default=0, help="of the seeds, for other data than those that are stored")
    options = parser.parse_args()
    if options.what == "run":
        run(options)
    elif options.what == "store":
        store(options.folder)
    else:
        stored = json.loads(STORED.read_text())
        for part in ("cells", "curve"):
            print(table(stored[part]), clean_table(stored[part]), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
