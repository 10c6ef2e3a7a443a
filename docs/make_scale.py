"""The study of size on docs/performance.md: `python docs/make_scale.py run FOLDER --part gaussian`, `store FOLDER`.

All with the defaults of NSM-Bayes, one network for every job; a row is a data set.

- gaussian: a location with as many parameters as columns and 10 % far outliers, beside the exact posterior of the good
  rows.
- decay: clean curves at d_x times, n = 4 d_x: the weights of good rows, and the error beside that of NLE.
- traces: seconds of a posterior of 60 time series, each known by four summaries.
- sir: seconds of a posterior of n epidemics, after a call that compiles.
- full: the posterior of n epidemics from a weighted subset, and the same draws weighed for the loss of all.

Every call of `run` adds rows to FOLDER/rows.jsonl as they are finished, and leaves out those that are there. Parts may
run beside one another; those that are timed belong on cores of their own (`taskset`, `JAX_PLATFORMS=cpu`). `store`
writes docs/scale-study.json, from which `make_performance.py` makes its tables.
"""

import argparse
import functools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from excess_problems import contaminate

STORED = Path(__file__).parent / "scale-study.json"
SEED, SIMULATIONS = 62_000, 50_000
FAR = "10 % at 40"
_STEPS = 150  # of a trace
_WEIGHED = 400  # draws at which the loss of all is computed
_SHARED = 2_000  # observations: programs serve any larger number of them


class Effort(NamedTuple):
    """How much is done; the defaults are what is stored."""

    sets: int = 20
    simulations: int = SIMULATIONS
    epochs: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    """Of NSM-Bayes, for a trial run."""


class Problem(NamedTuple):
    """A simulator with a Gaussian prior."""

    simulator: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    mean: np.ndarray
    sd: np.ndarray

    def truth(self, rng: np.random.Generator) -> np.ndarray:
        """A parameter, from the prior."""
        return self.mean + self.sd * rng.standard_normal(len(self.mean))

    def observe(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Clean observations of a new truth, and the truth."""
        truth = self.truth(rng)
        return self.simulator(rng, np.tile(truth, (n, 1))), truth


def noise_factor(d: int) -> np.ndarray:
    """The Cholesky factor of the Gaussian location's covariance: correlation 0.6 between neighbours."""
    near = 0.6 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    sd = np.linspace(0.7, 1.4, d)
    return np.linalg.cholesky(near * np.outer(sd, sd))


def location(d: int) -> Problem:
    """x = theta + correlated Gaussian noise."""
    factor = noise_factor(d)
    return Problem(lambda r, t: t + r.standard_normal(t.shape) @ factor.T, np.zeros(d), np.full(d, 2.0))


def decay(d: int) -> Problem:
    """Amplitude, rate and floor of a decay at d times, with noise of unknown size that grows with the signal."""
    times = np.linspace(0.2, 5.0, d)

    def simulator(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
        signal = np.exp(t[:, :1] - np.exp(t[:, 1:2]) * times) + np.exp(t[:, 2:3])
        return signal + np.exp(t[:, 3:4]) * np.sqrt(signal) * r.standard_normal(signal.shape)

    return Problem(simulator, np.array([1.0, -0.5, -1.0, -1.7]), np.array([0.4, 0.4, 0.5, 0.4]))


def traces() -> Problem:
    """An autoregression seen with noise: its mean, log sd and correlations at lags one and three (Fisher's z)."""

    def simulator(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
        keep, size = 1 / (1 + np.exp(-t[:, 1])), np.exp(t[:, 2])
        state, seen = size / np.sqrt(1 - keep**2) * r.standard_normal(len(t)), []
        for _ in range(_STEPS):
            state = keep * state + size * r.standard_normal(len(t))
            seen.append(t[:, 0] + state + np.exp(t[:, 3]) * r.standard_normal(len(t)))
        y = np.stack(seen, axis=1)
        centred = y - y.mean(axis=1, keepdims=True)
        variance = (centred**2).mean(axis=1)
        lags = [np.arctanh((centred[:, k:] * centred[:, :-k]).mean(axis=1) / variance) for k in (1, 3)]
        return np.stack([y.mean(axis=1), 0.5 * np.log(variance), *lags], axis=1)

    return Problem(simulator, np.array([0.0, 1.0, -0.5, -1.0]), np.array([2.0, 0.7, 0.5, 0.5]))


def trained(problem: Problem, seed: int, effort: Effort) -> Any:
    """NSM-Bayes after its default training."""
    import nsmbayes as nsm

    prior = nsm.GaussianPrior(problem.mean, np.square(problem.sd))
    theta = np.asarray(prior.sample((effort.simulations,), seed=seed))
    x = problem.simulator(np.random.default_rng([seed, 1]), theta)
    return _fit(nsm.NSMBayes(prior, **dict(effort.options)).append_simulations(theta, x), x.shape[1], effort)


def _fit(method: Any, d_x: int, effort: Effort) -> Any:
    settings = method.default_training(d_x)
    if effort.epochs is not None:
        settings = replace(settings, max_epochs=effort.epochs)
    return method.train(0, settings=settings, progress=False)


def gaussian_rows(d: int, todo: list[int], effort: Effort, n: int = 100) -> Iterator[dict[str, Any]]:
    """Beside the exact posterior of the good rows: distances of means in its sds, and ratios of sds."""
    problem, seed = location(d), SEED + d
    method = trained(problem, seed, effort)
    precision = np.linalg.inv(noise_factor(d) @ noise_factor(d).T)
    for number in todo:
        rng = np.random.default_rng([seed, 2, number])
        clean, truth = problem.observe(rng, n)
        x, bad = contaminate(clean, FAR, rng)
        posterior, seconds = _timed(method, x, number)
        covariance = np.linalg.inv(np.diag(problem.sd**-2) + (~bad).sum() * precision)
        exact, sd = covariance @ (precision @ x[~bad].sum(axis=0)), np.sqrt(np.diag(covariance))
        off, ratio = np.abs(posterior.mean - exact) / sd, posterior.std / sd
        yield {
            "set": number,
            "mean_off": float(np.sqrt((off**2).mean())),
            "worst_mean_off": float(off.max()),
            "sd_ratio": float(np.exp(np.log(ratio).mean())),
            "smallest_ratio": float(ratio.min()),
            "largest_ratio": float(ratio.max()),
            **_facts(posterior, truth, seconds, ~bad),
        }


def decay_rows(d: int, todo: list[int], effort: Effort) -> Iterator[dict[str, Any]]:
    """Weights of clean rows, and the squared error beside that of NLE with the same network."""
    import nsmbayes as nsm

    problem, seed = decay(d), SEED + 100 + d
    method = trained(problem, seed, effort)
    kept = {name: value for name, value in effort.options if name in ("draws", "chains")}
    nle = nsm.NLE(method.prior, **kept).adopt(method)
    for number in todo:
        x, truth = problem.observe(np.random.default_rng([seed, 2, number]), 4 * d)
        posterior, seconds = _timed(method, x, number)
        plain, nle_seconds = _timed(nle, x, number)
        yield {
            "set": number,
            **_facts(posterior, truth, seconds, np.ones(len(x), bool)),
            "nle_mse": plain.mse(truth),
            "nle_covered": bool(plain.contains(truth)),
            "nle_seconds": nle_seconds,
        }


def trace_rows(n: int, todo: list[int], effort: Effort) -> Iterator[dict[str, Any]]:
    """Seconds of a posterior; the first one compiles."""
    problem, seed = traces(), SEED + 200
    method = trained(problem, seed, effort)
    for number in todo:
        rng = np.random.default_rng([seed, 2, number])
        clean, truth = problem.observe(rng, n)
        x, bad = contaminate(clean, FAR, rng)
        posterior, seconds = _timed(method, x, number)
        yield {"set": number, "first": number == todo[0], **_facts(posterior, truth, seconds, ~bad)}


def sir_rows(n: int, todo: list[int], effort: Effort) -> Iterator[dict[str, Any]]:
    """Seconds of a posterior of SIR data with undercounting, after a call on other data."""
    task, method = _sir(effort)
    _compile(min(n, _SHARED), effort)
    for number in todo:
        observed = _observed(task, n, number)
        posterior, seconds = _timed(method, observed.x, number)
        facts = _facts(posterior, task.theta_true, seconds, ~observed.is_outlier)
        yield {"set": number, **facts, "error_nats": getattr(posterior.compression, "error", None)}


def full_rows(n: int, todo: list[int], effort: Effort) -> Iterator[dict[str, Any]]:
    """The posterior of a subset beside that of all observations: some of its draws, weighed for the loss of all."""
    from nsmbayes.losses.blocks import losses_at

    task, method = _sir(effort)
    for number in todo:
        subset, seconds = _timed(method, _observed(task, n, number).x, number)
        compression, start = subset.compression, time.perf_counter()
        theta = subset.sample((_WEIGHED,), seed=number)
        [each] = losses_at([compression.full.block(0)], theta)
        logs = subset.beta * (each @ compression.weights - compression.full.total(theta))
        full_seconds = time.perf_counter() - start
        weights = np.exp(logs - logs.max())
        mean = np.average(theta, axis=0, weights=weights)
        std = np.sqrt(np.average((theta - mean) ** 2, axis=0, weights=weights))
        off, ratio = np.abs(theta.mean(axis=0) - mean) / std, theta.std(axis=0) / std
        yield {
            "set": number,
            "worst_mean_off": float(off.max()),
            "smallest_ratio": float(ratio.min()),
            "largest_ratio": float(ratio.max()),
            "error_nats": getattr(subset.compression, "error", None),
            "beta": float(subset.beta),
            "seconds": seconds,
            "full_seconds": full_seconds,
        }


@functools.cache
def _sir(effort: Effort) -> tuple[Any, Any]:
    import nsmbayes as nsm

    task = nsm.tasks.get("sir")
    with _on_processor():
        theta, x = task.simulate(effort.simulations, seed=SEED + 290, progress=False)
    method = nsm.NSMBayes(task.prior, grid_steps=task.grid_steps, **dict(effort.options))
    return task, _fit(method.append_simulations(theta, x), x.shape[1], effort)


@functools.cache
def _compile(n: int, effort: Effort) -> None:
    task, method = _sir(effort)
    _timed(method, _observed(task, n, -1).x, 0)


def _observed(task: Any, n: int, number: int) -> Any:
    with _on_processor():
        return task.observe(n, seed=SEED + 300 + number)


def _on_processor() -> Any:
    """Many small steps one after the other, which a GPU is bad at."""
    import jax

    return jax.default_device(jax.devices("cpu")[0])


def _timed(method: Any, x: np.ndarray, seed: int, **options: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    posterior = method.build_posterior(x, seed=seed, progress=False, **options)
    return posterior, time.perf_counter() - start


def _facts(posterior: Any, truth: np.ndarray, seconds: float, good: np.ndarray) -> dict[str, Any]:
    weights = np.asarray(posterior.weights)[good]
    return {
        "seconds": seconds,
        "beta": float(posterior.beta),
        "mse": posterior.mse(truth),
        "covered": bool(posterior.contains(truth)),
        "good_weight": float(weights.mean()),
        "good_below_tenth": float((weights < 0.1).mean()),
    }


class Part(NamedTuple):
    """The rows of a part, its sizes, and how many data sets each has."""

    rows: Callable[..., Iterator[dict[str, Any]]]
    sizes: tuple[int, ...]
    sets: int


PARTS = {
    "gaussian": Part(gaussian_rows, (8, 15), 20),
    "decay": Part(decay_rows, (6, 12, 30), 20),
    "traces": Part(trace_rows, (60,), 5),
    "sir": Part(sir_rows, (100, 1_000, 10_000, 100_000), 1),
    "full": Part(full_rows, (10_000,), 1),
}


def run(folder: Path, part: str, sizes: list[int], effort: Effort) -> None:
    """The rows of a part that are not in the folder yet."""
    import jax

    from nsmbayes.experiments import machine

    warnings.simplefilter("ignore")  # observations outside the simulations are the point here
    folder.mkdir(parents=True, exist_ok=True)
    path, facts = folder / "rows.jsonl", machine.facts()
    where = {name: facts[name] for name in ("date", "cpu", "cores")}
    where |= {"device": jax.devices()[0].device_kind, "jax": facts["packages"]["jax"]}
    for size in sizes:
        done = {row["set"] for row in read(path) if (row["part"], row["size"]) == (part, size)}
        todo = [number for number in range(min(effort.sets, PARTS[part].sets)) if number not in done]
        for row in PARTS[part].rows(size, todo, effort) if todo else ():
            row = {"part": part, "size": size} | row | where
            with path.open("a") as file:  # one write a line, so that processes can share the file
                file.write(json.dumps(row) + "\n")
            print(f"{part} {size}, data set {row['set']}: {row['seconds']:.1f} s", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far; a last line that was cut off is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def store(folder: Path, stored: Path = STORED) -> None:
    """Keep the rows of a folder, instead of the stored ones of the same parts and sizes."""
    new = read(folder / "rows.jsonl")
    known = {(row["part"], row["size"]) for row in new}
    old = json.loads(stored.read_text())["rows"] if stored.exists() else []
    rows = new + [row for row in old if (row["part"], row["size"]) not in known]
    rows.sort(key=lambda row: (list(PARTS).index(row["part"]), row["size"], row["set"]))
    rounded = [{k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    lines = ",\n  ".join(json.dumps(row) for row in rounded)
    stored.write_text(f'{{"simulations": {SIMULATIONS}, "rows": [\n  {lines}\n]}}\n')


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "store"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--size", type=int, action="append", help="by default all sizes of the part")
    parser.add_argument("--sets", type=int, default=20, help="data sets at most")
    options = parser.parse_args(arguments)
    if options.what == "store":
        store(options.folder)
        return
    for part in [options.part] if options.part else PARTS:
        run(options.folder, part, options.size or list(PARTS[part].sizes), Effort(sets=options.sets))


if __name__ == "__main__":
    main()
