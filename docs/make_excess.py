"""The study behind docs/excess.md: `python docs/make_excess.py run rows.jsonl`; `table` prints the stored one.

Problems of one, two and eight columns beside the built-in tasks, seven kinds of outliers, n = 100 and beta = 1. A row
is a data set: mean squared error and coverage with the factor by number, and of the oracle, which is NLE on the good
rows. `--alternatives` compares other widths and thresholds. It takes hours on two cores.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nsmbayes as nsm

STORED = Path(__file__).parent / "excess-study.json"
N = 100
LOADINGS = np.random.default_rng(5).standard_normal((8, 3))


def normal(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Unknown mean and log standard deviation."""
    return (t[:, 0] + np.exp(t[:, 1]) * r.standard_normal(len(t)))[:, None]


def student(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Unknown location, scale and tails."""
    return (t[:, 0] + np.exp(t[:, 1]) * r.standard_t(1.5 + np.exp(t[:, 2] + 0.5), len(t)))[:, None]


def groups(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Two groups, of 60 and 40 %, with unknown distance."""
    first, s = r.random(len(t)) < 0.6, np.exp(t[:, 2])
    where = np.where(first, t[:, 0], t[:, 0] + np.exp(t[:, 1]))
    return (where + np.where(first, s, 0.6 * s) * r.standard_normal(len(t)))[:, None]


def gumbel(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Unknown location and scale, skewed."""
    return (t[:, 0] - np.exp(t[:, 1]) * np.log(r.exponential(size=len(t))))[:, None]


def ring(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """A ring of unknown centre, radius and width."""
    angle = r.uniform(0, 2 * np.pi, len(t))
    radius = np.exp(t[:, 2]) + np.exp(t[:, 3]) * r.standard_normal(len(t))
    return np.c_[t[:, 0] + radius * np.cos(angle), t[:, 1] + radius * np.sin(angle)]


def linear(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Eight columns, linear in three parameters, with correlated noise."""
    noise = r.standard_normal((len(t), 8)) + 0.7 * r.standard_normal((len(t), 1))
    return t[:, :3] @ LOADINGS.T + np.exp(t[:, 3:]) * noise


# simulator, prior mean, prior sd, truth
PROBLEMS: dict[str, tuple[Callable[..., np.ndarray], list[float], list[float], list[float]]] = {
    "normal": (normal, [0, 0], [3, 1], [1, 0.5]),
    "student": (student, [0, 0, 0], [2, 0.7, 0.7], [0.7, 0.2, 0.3]),
    "groups": (groups, [0, 1.8, 0], [2, 0.4, 0.5], [0.3, 1.9, -0.3]),
    "gumbel": (gumbel, [0, 0], [2, 0.7], [1, 0.3]),
    "ring": (ring, [0, 0, 1, -1], [1.5, 1.5, 0.5, 0.5], [0.4, -0.8, 1.2, -1.1]),
    "linear": (linear, [0, 0, 0, -0.5], [1, 1, 1, 0.5], [0.5, -0.7, 0.3, -0.6]),
}
TASKS = ("gnk", "sir", "radio", "pk")
NAMES = {
    "normal": "normal",
    "student": "Student, tails unknown",
    "groups": "two groups, 60 and 40 %",
    "gumbel": "Gumbel",
    "gnk": "g-and-k",
    "ring": "ring, 2 columns",
    "sir": "SIR, 3 columns",
    "radio": "radio, 4 columns",
    "pk": "pharmacokinetics, 5 columns",
    "linear": "linear, 8 columns",
}
# fraction, distance and spread in median absolute deviations, and whether on both sides
KINDS: dict[str, tuple[float, float, float, bool]] = {
    "clean": (0, 0, 0, False),
    "10 % at 40": (0.1, 40, 1, False),
    "10 % at 4": (0.1, 4, 0.5, False),
    "20 % in a cluster at 9": (0.2, 9, 0.3, False),
    "30 % in a cluster at 8": (0.3, 8, 0.1, False),
    "30 % at 8, both sides": (0.3, 8, 0.5, True),
    "10 % stuck at -6": (0.1, -6, 0, False),
}
CURVE = {"45 % at 40": (0.45, 40.0, 1.0, False)} | {
    f"30 % in a cluster at {d}": (0.3, float(d), 0.1, False) for d in (3, 4, 6, 8, 12)
}
OWN = "as the task has them"
ALTERNATIVES = {
    "default": nsm.weights.Excess(),
    "threshold 1.5": nsm.weights.Excess(threshold=1.5),
    "threshold 3": nsm.weights.Excess(threshold=3.0),
    "widths 0.1, 0.2, 0.4": nsm.weights.Excess(levels=(0.1, 0.2, 0.4)),
    "widths 0.4, 0.8, 1.6": nsm.weights.Excess(levels=(0.4, 0.8, 1.6)),
    "none": None,
}


def contaminate(clean: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Observations of which some are replaced, and which."""
    fraction, distance, spread, both = (KINDS | CURVE)[kind]
    (n, d), x, bad = clean.shape, clean.copy(), np.zeros(len(clean), bool)
    rows = rng.choice(n, int(fraction * n), replace=False)
    bad[rows] = True
    centre = np.median(clean, axis=0)
    scale = 1.4826 * np.median(np.abs(clean - centre), axis=0)
    sides = np.where(rng.random((len(rows), 1)) < 0.5, -1, 1) if both else 1
    x[rows] = centre + scale * (distance * sides + spread * rng.standard_normal((len(rows), d)))
    return x, bad


def trained(name: str) -> tuple[Any, np.ndarray, Callable[[np.ndarray, int], np.ndarray]]:
    """A method, the truth, and a simulator of one observation per row of theta."""
    if name in TASKS:
        task = nsm.tasks.get(name)
        method = nsm.NSMBayes(task.prior).append_simulations(*task.simulate(100_000, seed=400))
        simulate = lambda theta, seed: np.asarray(task.simulator(theta, seed=seed, progress=False))  # noqa: E731
        return method.train(0, progress=False), np.asarray(task.theta_true), simulate
    simulator, mean, sd, truth = PROBLEMS[name]
    prior = nsm.GaussianPrior(mean, np.square(sd))
    simulate = lambda theta, seed: simulator(np.random.default_rng([seed, 17]), theta)  # noqa: E731
    theta = np.asarray(prior.sample((30_000,), seed=400))
    method = nsm.NSMBayes(prior).append_simulations(theta, simulate(theta, 401)).train(0, progress=False)
    return method, np.asarray(truth, float), simulate


def measure(name: str, kinds: list[str], repeats: int, seed: int, variants: dict[str, Any]) -> Any:
    """One row per data set."""
    network, truth, simulate = trained(name)
    methods = {k: nsm.NSMBayes(network.prior, calibration=None, excess=v).adopt(network) for k, v in variants.items()}
    oracle = nsm.NLE(network.prior).adopt(network)
    for repeat in range(repeats):
        for kind in kinds:
            if kind == OWN:
                observed = nsm.tasks.get(name).observe(N, seed=1000 * seed + repeat)
                x, bad = observed.x, observed.is_outlier
            else:
                clean = simulate(np.tile(truth, (N, 1)), 1000 * seed + repeat)
                x, bad = contaminate(clean, kind, np.random.default_rng([repeat, seed]))
            row: dict[str, Any] = {"problem": name, "kind": kind, "repeat": repeat, "seed": seed}
            for label, method in {**methods, "oracle": oracle}.items():
                start = time.perf_counter()
                posterior = method.build_posterior(x[~bad] if label == "oracle" else x, seed=repeat)
                seconds = time.perf_counter() - start
                found = {"mse": posterior.mse(truth), "covered": bool(posterior.contains(truth)), "seconds": seconds}
                if posterior.suspects is not None:
                    factor = posterior.suspects.factor.values
                    found |= {"good": float(factor[~bad].mean()), "below_half": float((factor[~bad] < 0.5).mean())}
                row[label] = found
            yield row


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the data sets of every problem and kind, for every variant."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["problem"], row["kind"]), []).append(row)
    found = []
    for (problem, kind), some in cells.items():
        labels = [label for label in some[0] if label not in ("problem", "kind", "repeat", "seed")]
        means = {
            label: {name: float(np.mean([row[label][name] for row in some])) for name in some[0][label]}
            for label in labels
        }
        found.append({"problem": problem, "kind": kind, "datasets": len(some)} | means)
    return found


def table(cells: list[dict[str, Any]]) -> str:
    """The table of the page."""
    lines = [
        "| problem | data | data sets | with excess | oracle | ratio | good rows keep |",
        "|---|---|---|---|---|---|---|",
    ]
    problems, kinds = list(NAMES), [*(KINDS | CURVE), OWN]
    for cell in sorted(cells, key=lambda c: (problems.index(c["problem"]), kinds.index(c["kind"]))):
        ours, oracle = cell["default"], cell["oracle"]
        shown = [f"{each['mse']:.3g} ({each['covered']:.0%})".replace("%", " %") for each in (ours, oracle)]
        lines.append(
            f"| {NAMES[cell['problem']]} | {cell['kind']} | {cell['datasets']} | {shown[0]} | {shown[1]} | "
            f"{ours['mse'] / oracle['mse']:.2f} | {ours['good']:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("rows", nargs="?", type=Path, help="file for the rows, one JSON document per line")
    parser.add_argument("--problems", default=",".join(NAMES))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=83)
    parser.add_argument("--curve", action="store_true", help="45 %% far, and clusters at several distances")
    parser.add_argument("--alternatives", action="store_true", help="other widths and thresholds")
    options = parser.parse_args()
    if options.what == "table":
        stored = json.loads(STORED.read_text())
        print(table(stored["cells"]), table(stored["curve"]), sep="\n\n")
        return
    variants = ALTERNATIVES if options.alternatives else {"default": nsm.weights.Excess()}
    with warnings.catch_warnings(), options.rows.open("a") as file:
        warnings.simplefilter("ignore", UserWarning)
        for name in options.problems.split(","):
            kinds = list(CURVE) if options.curve else [*KINDS, OWN] if name in TASKS else list(KINDS)
            for row in measure(name, kinds, options.repeats, options.seed, variants):
                file.write(json.dumps(row) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
