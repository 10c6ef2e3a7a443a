"""The study behind docs/trust.md: `python docs/make_trust.py run rows.jsonl`, `store rows.jsonl`, `table`.

Coverage of 95 % regions and mean squared errors of the default methods: on g-and-k from n = 10 to 10,000, clean and
with 10 % far outliers, and trained on m = 1,000 to 100,000 simulations; on four problems that the package does not
know; and after `refine`. Every network has its own simulations. `--jobs` runs so many of them at a time.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from excess_problems import contaminate, groups, ring

STORED = Path(__file__).parent / "trust-study.json"
TIMES = np.linspace(0.3, 6.0, 6)


def stable(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """A symmetric stable law of unknown location, scale and index (Chambers, Mallows and Stuck's formula)."""
    alpha = 1.1 + 0.85 / (1 + np.exp(-t[:, 2]))
    v, w = r.uniform(-np.pi / 2, np.pi / 2, len(t)), r.exponential(size=len(t))
    z = np.sin(alpha * v) / np.cos(v) ** (1 / alpha) * (np.cos((1 - alpha) * v) / w) ** ((1 - alpha) / alpha)
    return (t[:, 0] + np.exp(t[:, 1]) * z)[:, None]


def decay(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Exponential decay at six times, with noise of unknown size."""
    clean = np.exp(t[:, :1] - np.exp(t[:, 1:2]) * TIMES)
    return clean + np.exp(t[:, 2:3]) * r.standard_normal(clean.shape)


# simulator, prior mean, prior sd, truth
PROBLEMS: dict[str, tuple[Callable[..., np.ndarray], list[float], list[float], list[float]]] = {
    "two groups": (groups, [0, 1.8, 0], [2, 0.4, 0.5], [-0.6, 2.1, 0.2]),
    "ring": (ring, [0, 0, 1, -1], [1.5, 1.5, 0.5, 0.5], [-0.5, 0.9, 0.8, -0.8]),
    "stable law": (stable, [0, 0, 0], [2, 0.7, 1.0], [0.8, -0.3, 0.4]),
    "decay curves": (decay, [1.0, -0.7, -1.5], [0.5, 0.5, 0.5], [1.3, -0.4, -1.7]),
}


class Job(NamedTuple):
    """A network, and the data sets it is asked about."""

    problem: str
    method: str
    m: int
    network: int
    sizes: tuple[int, ...]
    sets: int
    refined: int = 0


def jobs(sets: int, networks: Iterable[int]) -> Iterator[Job]:
    """All of them."""
    for network in networks:
        yield Job("gnk", "NSMBayesAmortised", 100_000, network, (10_000,), sets // 2, refined=50_000)
        for method in ("NSMBayesAmortised", "NSMBayes"):
            yield Job("gnk", method, 100_000, network, (10, 100, 1000, 10_000), sets // 2)
        for m in (1000, 3000, 10_000, 30_000):
            yield Job("gnk", "NSMBayesAmortised", m, network, (100,), sets)
        for problem in PROBLEMS:
            for method in ("NSMBayesAmortised", "NSMBayes", "NSMBayesConj"):
                yield Job(problem, method, 50_000, network, (100,), sets)


def run(job: Job) -> list[dict[str, Any]]:
    """The rows of one network."""
    import nsmbayes as nsm

    warnings.simplefilter("ignore")
    seed = 7_000 + 1_000 * job.network + job.m % 997
    task = nsm.tasks.get("gnk")
    prior, truth = task.prior, np.asarray(task.theta_true)

    def simulate(theta: np.ndarray, seed: int) -> np.ndarray:
        if job.problem == "gnk":
            return task.simulator(theta, seed=seed, progress=False)
        return PROBLEMS[job.problem][0](np.random.default_rng(seed), theta)

    if job.problem != "gnk":
        _, mean, sd, values = PROBLEMS[job.problem]
        prior, truth = nsm.GaussianPrior(mean=mean, covariance=np.square(sd)), np.asarray(values)
    theta = prior.sample((job.m,), seed=seed)
    x = simulate(theta, seed)
    method = getattr(nsm, job.method)(prior).append_simulations(theta, x).train(seed=job.network, progress=False)
    trained = dict(vars(method))
    rows = []
    for n in job.sizes:
        for number in range(job.sets):
            for far in (False, True):
                data = seed + 50_000 + 100 * number + n
                clean = simulate(np.tile(truth, (n, 1)), data)
                rng, start = np.random.default_rng([data, 1]), time.perf_counter()
                observed = contaminate(clean, "10 % at 40", rng)[0] if far else clean
                if job.refined:
                    if number >= 2:  # each costs a training
                        continue
                    vars(method).update(trained | {"_simulations": list(trained["_simulations"]), "_test": None})
                    method.refine(observed, task, simulations=job.refined, seed=number, progress=False)
                posterior = method.build_posterior(observed, seed=number)
                check = posterior.surrogate_check
                rows.append(
                    job._asdict()
                    | {
                        "n": n,
                        "far": far,
                        "covered": bool(posterior.contains(truth)),
                        "mse": posterior.mse(truth),
                        "ratio": None if check is None else check.ratio,
                        "warned": bool(posterior.warnings),
                        "seconds": time.perf_counter() - start,
                    }
                )
    return rows


def run_all(path: Path, sets: int, networks: list[int], workers: int, only: str | None) -> None:
    """All networks, in so many processes; rows are added as they come, and networks that have theirs are left out."""
    known = {_key(row) for row in _read(path)} if path.exists() else set()
    todo = [
        job for job in jobs(sets, networks) if _key(job._asdict()) not in known and (only is None or only in str(job))
    ]
    context = multiprocessing.get_context("spawn")
    pinned = _one_core if len(todo) >= workers else None
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=pinned) as pool:
        for number, made in enumerate(concurrent.futures.as_completed([pool.submit(run, job) for job in todo])):
            if made.exception() is not None:
                print(made.exception())
                continue
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in made.result())
            print(f"{number + 1} of {len(todo)} networks: {_key(made.result()[0])}", flush=True)


def _one_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def _key(row: dict[str, Any]) -> str:
    return str([row[name] for name in ("problem", "method", "m", "network", "refined")])


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per problem, method, number of simulations and n."""
    lines = [
        "| problem | method | simulations | n | data sets | coverage | MSE | widened by | warned, of those missed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = sorted({(r["problem"], r["method"], r["m"], r["refined"], r["n"], r["far"]) for r in rows})
    for key in groups:
        problem, method, m, refined, n, far = key
        own = [r for r in rows if (r["problem"], r["method"], r["m"], r["refined"], r["n"], r["far"]) == key]
        missed = [r for r in own if not r["covered"]]
        ratios = [np.sqrt(1 + r["ratio"]) for r in own if r["ratio"] is not None]
        entries = [
            problem + ", 10 % far" * far,
            method,
            f"{m:,}" + (f" + {refined:,}" if refined else ""),
            f"{n:,}",
            str(len(own)),
            f"{np.mean([r['covered'] for r in own]):.0%}",
            f"{np.mean([r['mse'] for r in own]):.3g}",
            f"{np.median(ratios):.2f}" if ratios else "unchecked",
            f"{sum(r['warned'] for r in missed)} of {len(missed)}",
        ]
        lines.append(f"| {' | '.join(entries)} |")
    return "\n".join(lines)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("run", "store", "table"))
    parser.add_argument("rows", type=Path, nargs="?", default=STORED)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--networks", type=int, nargs="+", default=[0, 1, 2, 3], help="numbers, which are seeds")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="jobs whose description contains this")
    arguments = parser.parse_args()
    if arguments.action == "run":
        run_all(arguments.rows, arguments.sets, arguments.networks, arguments.jobs, arguments.only)
    elif arguments.action == "store":
        STORED.write_text(json.dumps(_read(arguments.rows), indent=0) + "\n")
    else:
        print(table(json.loads(STORED.read_text()) if arguments.rows == STORED else _read(arguments.rows)))


if __name__ == "__main__":
    main()
