"""The study behind docs/verdict.md: `python docs/make_verdict.py run rows.jsonl --models folder`.

`store rows.jsonl` keeps the rows, `table` prints them, and `picture` draws the figure.

Five tasks, n = 100: clean data, 10 % far outliers, 20 % in a cluster, and data of two other simulators, which differ
from the task's in the bulk. A row is a data set with the verdict on it. A model is trained where the folder has none.
Seeds from 9000 on are those of the page; others were used to choose the test.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import nsmbayes as nsm
from nsmbayes._internal.precision import double_precision
from nsmbayes.experiments.outliers import place_outliers
from nsmbayes.tasks import gnk_exact, pk, radio, sir

STORED = Path(__file__).parent / "verdict-study.json"
N = 100
SIMULATIONS = {"gaussian": 50_000, "gnk": 100_000, "sir": 50_000, "pk": 50_000, "radio": 30_000}
OTHERS = {
    "gaussian": ("skewed noise", "two groups"),
    "gnk": ("two groups", "close groups", "bounded noise"),
    "sir": ("weekly reports", "varying transmission"),
    "radio": ("varying noise", "varying decay"),
    "pk": ("additive noise", "two compartments"),
}
OUTLIERS = {"far": 0.1, "clustered": 0.2}


def gaussian_other(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Exponential noise of the same mean and variance, or two groups."""
    mu, sigma = nsm.tasks.get("gaussian").theta_true
    if kind == "skewed noise":
        z = rng.exponential(size=N) - 1
    else:
        z = rng.choice([-0.9, 0.9], N) + 0.4 * rng.standard_normal(N)
    return (mu + np.exp(sigma) * z)[:, None]


def gnk_other(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Two groups, or the quantile function at uniform numbers of variance one, which is hard to tell."""
    theta = nsm.tasks.get("gnk").theta_true
    if kind != "bounded noise":
        apart, width = (1.5, 0.5) if kind == "two groups" else (1.0, 0.35)
        z = rng.choice([-apart, apart], N) + width * rng.standard_normal(N)
        return (theta[0] + np.exp(theta[1]) * z)[:, None]
    u = rng.uniform(-(3**0.5), 3**0.5, N)
    return np.asarray(gnk_exact.quantile(jnp.asarray(theta), jnp.asarray(u)))[:, None]


def sir_other(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Cases that are reported once a week, or epidemics that differ in their transmission by 20 %."""
    theta = np.tile(nsm.tasks.get("sir").theta_true, (N, 1))
    seed = int(rng.integers(2**31))
    if kind == "varying transmission":
        theta[:, 0] += 0.2 * rng.standard_normal(N)
        return nsm.tasks.get("sir").simulator(theta, seed=seed, progress=False)
    daily = np.asarray(sir.epidemics(theta, seed=seed).reported)
    weekly = np.zeros_like(daily)
    for end in range(6, sir.T, 7):
        weekly[:, end] = daily[:, end - 6 : end + 1].sum(axis=1)
    return np.asarray(jax.vmap(sir.summaries)(jnp.asarray(weekly)))


def radio_other(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Receivers that differ in their noise, or channels that differ in their decay."""
    theta = np.tile(radio.RADIO.theta_true, (N, 1))
    column, spread = (3, 2.0) if kind == "varying noise" else (1, 0.3)
    theta[:, column] += spread * rng.standard_normal(N)
    return radio.RADIO.simulator(theta, seed=int(rng.integers(2**31)), progress=False)


def pk_other(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Noise of 0.4 mg / L on concentrations, not on their logarithms; or a second compartment."""
    log_ka, log_CL, log_V, log_omega, log_sigma = theta = nsm.tasks.get("pk").theta_true
    k = np.exp(log_CL - log_V + np.exp(log_omega) * rng.standard_normal(N))
    if kind == "additive noise":
        curves = np.asarray(jax.vmap(pk.log_concentrations, (None, 0))(jnp.asarray(theta), jnp.asarray(np.log(k))))
        return np.log(np.maximum(np.exp(curves) + 0.4 * rng.standard_normal(curves.shape), 0.05))
    ka, out, back, step = np.exp(log_ka), 0.6, 0.3, 0.01  # Euler's rule, of the gut, the blood and the tissue
    gut, blood, tissue = np.full(N, pk.DOSE), np.zeros(N), np.zeros(N)
    found, times = [], np.rint(pk.TIMES / step).astype(int)
    for i in range(1, times[-1] + 1):
        flow = out * blood - back * tissue
        gut, blood, tissue = gut - step * ka * gut, blood + step * (ka * gut - k * blood - flow), tissue + step * flow
        if i in times:
            found.append(np.log(blood / np.exp(log_V)))
    return np.stack(found, axis=1) + np.exp(log_sigma) * rng.standard_normal((N, len(times)))


@double_precision
def observed(task: str, data: str, seed: int) -> np.ndarray:
    """A data set: clean, with outliers, or of another simulator."""
    if data == "clean" or data in OUTLIERS:
        clean = nsm.tasks.get(task).observe(N, seed=seed, contamination="none").x
        return clean if data == "clean" else place_outliers(clean, data, fraction=OUTLIERS[data], seed=seed).x
    return globals()[f"{task}_other"](data, np.random.default_rng([seed, len(data)]))


def trained(task: str, folder: Path) -> nsm.NSMBayesAmortised:
    """The method of a task, from a folder of models or trained now and saved there."""
    path = folder / f"{task}.model"
    if path.exists():
        return nsm.load(path)
    one = nsm.tasks.get(task)
    method = nsm.NSMBayesAmortised(
        one.prior, grid_steps=one.grid_steps, parameter_names=one.parameter_names, x_names=one.x_names
    )
    method.append_simulations(*one.simulate(SIMULATIONS[task], seed=0, progress=False)).train(0, progress=False)
    method.save(path)
    return method


def rows(task: str, seeds: range, folder: Path) -> list[dict]:
    """The verdicts on the data sets of a task; posteriors have beta = 1, which saves the time of calibration."""
    method, found = trained(task, folder), []
    for seed in seeds:
        for data in ("clean", *OUTLIERS, *OTHERS[task]):
            start = time.perf_counter()
            posterior = method.build_posterior(observed(task, data, seed), beta=1.0, seed=seed)
            built = time.perf_counter()
            verdict = posterior.verdict(seed=1)
            about = {"task": task, "data": data, "seed": seed, "outcome": verdict.outcome.name, "p": verdict.p_value}
            about |= {"low": len(verdict.rows), "off": verdict.off, "build_s": built - start}
            found.append(about | {"verdict_s": time.perf_counter() - built})
    return found


def table(found: list[dict]) -> str:
    """How often each outcome was the verdict, by task and data."""
    counts: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in found:
        counts[row["task"], row["data"]][row["outcome"]] += 1
    lines = [
        "| task | data | data sets | consistent | but for some rows | wrong simulator |",
        "|---|---|---|---|---|---|",
    ]
    for (task, data), each in counts.items():
        total = sum(each.values())
        shown = [each[name] for name in ("CONSISTENT", "CONSISTENT_BUT", "WRONG")]
        lines.append(f"| {task} | {data} | {total} | " + " | ".join(map(str, shown)) + " |")
    return "\n".join(lines)


def picture(folder: Path) -> None:
    """Three data sets of the Gaussian task, each with its verdict."""
    from make_images import raster, save, stack

    method, parts = trained("gaussian", folder), []
    for data in ("clean", "clustered", "two groups"):
        posterior = method.build_posterior(observed("gaussian", data, 1), beta=1.0, seed=0)
        fig = posterior.plot("predictive")
        fig.axes[0].set_title(f"{data}: {posterior.verdict().verdict}", fontsize=10)
        parts.append(raster(fig, 85))
    save(stack(*parts), "verdict")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "store", "table", "picture"))
    parser.add_argument("rows", type=Path, nargs="?", help="file of rows, one JSON object per line")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--tasks", default=",".join(OTHERS))
    parser.add_argument("--seeds", default="9000-9020", help="first and last but one")
    options = parser.parse_args()
    if options.command == "run":
        warnings.simplefilter("ignore")
        first, last = map(int, options.seeds.split("-"))
        for task in options.tasks.split(","):
            for seed in range(first, last):
                with options.rows.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows(task, range(seed, seed + 1), options.models))
        return
    if options.command == "picture":
        picture(options.models)
        return
    if options.command == "store":
        found = [json.loads(line) for line in options.rows.read_text().splitlines()]
        STORED.write_text(json.dumps({"n": N, "rows": found}, indent=1) + "\n")
    print(table(json.loads(STORED.read_text())["rows"]))


if __name__ == "__main__":
    main()
