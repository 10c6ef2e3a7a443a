"""Problems and contaminations of the study behind docs/excess.md: five tasks and six problems that are not tasks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

N, COUNTS_N = 100, 300
LOADINGS = np.random.default_rng(5).standard_normal((8, 3))


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


def counts(r: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """Negative binomial counts of unknown mean and dispersion, of which an unknown share is zero instead."""
    mean, shape = np.exp(t[:, 0]), np.exp(t[:, 1])
    found = r.poisson(np.minimum(r.gamma(shape, mean / shape), 1e6))
    return np.where(r.random(len(t)) < 1 / (1 + np.exp(-t[:, 2])), 0, found)[:, None].astype(float)


class Problem(NamedTuple):
    """A simulator with a Gaussian prior and a truth."""

    simulator: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    mean: list[float]
    sd: list[float]
    truth: list[float]
    grid_steps: tuple[float, ...] | None = None


PROBLEMS = {
    "student": Problem(student, [0, 0, 0], [2, 0.7, 0.7], [0.7, 0.2, 0.3]),
    "groups": Problem(groups, [0, 1.8, 0], [2, 0.4, 0.5], [0.3, 1.9, -0.3]),
    "gumbel": Problem(gumbel, [0, 0], [2, 0.7], [1, 0.3]),
    "ring": Problem(ring, [0, 0, 1, -1], [1.5, 1.5, 0.5, 0.5], [0.4, -0.8, 1.2, -1.1]),
    "linear": Problem(linear, [0, 0, 0, -0.5], [1, 1, 1, 0.5], [0.5, -0.7, 0.3, -0.6]),
    "counts": Problem(counts, [2.5, 0.5, -0.5], [0.7, 0.5, 2.0], [2.7, 0.7, 0.0], (1.0,)),
}
NAMES = {
    "gaussian": "normal",
    "student": "Student, tails unknown",
    "groups": "two groups, 60 and 40 %",
    "gumbel": "Gumbel",
    "gnk": "g-and-k",
    "ring": "ring, 2 columns",
    "sir": "SIR, 3 columns",
    "radio": "radio, 4 columns",
    "pk": "pharmacokinetics, 5 columns",
    "linear": "linear, 8 columns",
    "counts": "zero-inflated counts",
}
COLUMNS = {"ring": 2, "sir": 3, "radio": 4, "pk": 5, "linear": 8}
ZEROS = (0, 5, 30, 60, 75, 90)  # %

OWN, CLEAN = "as the task has them", "clean"
# those of the experiments `outliers-*`: kind and fraction
BENCH: dict[str, tuple[str, float]] = {
    "5 % far": ("far", 0.05),
    "30 % far": ("far", 0.3),
    "10 % near": ("near", 0.1),
    "10 % clustered": ("clustered", 0.1),
    "30 % clustered": ("clustered", 0.3),
    "30 % both-sided": ("both-sided", 0.3),
    "20 % second population": ("population", 0.2),
    "10 % stuck": ("stuck", 0.1),
    "10 % drift": ("drift", 0.1),
    "10 % rounded": ("rounded", 0.1),
}
# in all columns at once: fraction, distance and spread in median absolute deviations, and whether on both sides
EVERYWHERE: dict[str, tuple[float, float, float, bool]] = {
    "10 % at 4": (0.1, 4, 0.5, False),
    "10 % at 40": (0.1, 40, 1, False),
    "20 % in a cluster at 9": (0.2, 9, 0.3, False),
    "30 % in a cluster at 8": (0.3, 8, 0.1, False),
    "30 % at 8, both sides": (0.3, 8, 0.5, True),
}
CURVE = {"45 % at 40": (0.45, 40.0, 1.0, False)} | {
    f"30 % in a cluster at {d}": (0.3, float(d), 0.1, False) for d in (3, 4, 6, 8, 12)
}


def kinds(problem: str, part: str) -> list[str]:
    """What is done to the data of a problem."""
    if problem == "counts":
        return [f"{zeros} % zeros, {what}" for zeros in ZEROS for what in (CLEAN, "5 % times 8")]
    if part == "curve":
        return list(CURVE)
    everywhere = (
        ["10 % at 4", "30 % in a cluster at 8", "30 % at 8, both sides"] if problem in COLUMNS else ["10 % at 4"]
    )
    return [CLEAN, *([] if problem in PROBLEMS else [OWN]), *BENCH, *everywhere]


def contaminate(clean: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Observations of which some are replaced in all columns at once, and which."""
    fraction, distance, spread, both = (EVERYWHERE | CURVE)[kind]
    (n, d), x, bad = clean.shape, clean.copy(), np.zeros(len(clean), bool)
    rows = rng.choice(n, int(fraction * n), replace=False)
    bad[rows] = True
    centre = np.median(clean, axis=0)
    scale = 1.4826 * np.median(np.abs(clean - centre), axis=0)
    sides = np.where(rng.random((len(rows), 1)) < 0.5, -1, 1) if both else 1
    x[rows] = centre + scale * (distance * sides + spread * rng.standard_normal((len(rows), d)))
    return x, bad


class Data(NamedTuple):
    """Observations, which of them are outliers, and the parameter behind the others."""

    x: np.ndarray
    bad: np.ndarray
    truth: np.ndarray


def zero_share(truth: np.ndarray, zeros: float) -> np.ndarray:
    """The truth of the counts with another share of zeros, those of the negative binomial included."""
    shape, mean = np.exp(truth[1]), np.exp(truth[0])
    by_chance = (shape / (shape + mean)) ** shape
    share = np.clip((zeros - by_chance) / (1 - by_chance), 0.005, 1)
    return np.array([truth[0], truth[1], np.log(share / (1 - share))])


def observe(name: str, kind: str, repeat: int, seed: int) -> Data:
    """A data set: the same clean rows for all kinds of one repeat."""
    import nsmbayes as nsm
    from nsmbayes.experiments.outliers import place_outliers

    mine = 10_000 * seed + repeat
    if name in PROBLEMS:
        truth = np.asarray(PROBLEMS[name].truth, float)
        if name == "counts":
            truth = zero_share(truth, float(kind.split()[0]) / 100)
        n = COUNTS_N if name == "counts" else N
        clean = PROBLEMS[name].simulator(np.random.default_rng([mine, 17]), np.tile(truth, (n, 1)))
    else:
        task = nsm.tasks.get(name)
        truth = np.asarray(task.theta_true)
        if kind == OWN:
            observed = task.observe(N, seed=mine)
            return Data(observed.x, observed.is_outlier, truth)
        clean = task.observe(N, seed=mine, contamination="none").x
    rng = np.random.default_rng([repeat, seed])
    if name == "counts":
        bad = np.zeros(len(clean), bool)
        if kind.endswith("times 8"):
            bad[rng.permutation(len(clean))[: len(clean) // 20]] = True
        bad &= clean[:, 0] > 0  # eight times nothing is nothing
        return Data(np.where(bad[:, None], 8 * clean, clean), bad, truth)
    if kind == CLEAN:
        return Data(clean, np.zeros(len(clean), bool), truth)
    if kind in BENCH:
        what, fraction = BENCH[kind]
        placed = place_outliers(clean, what, fraction=fraction, seed=mine)
        return Data(placed.x, placed.is_outlier, truth)
    return Data(*contaminate(clean, kind, rng), truth)


def network_path(folder: Path, name: str, shift: int) -> Path:
    """Where the network of a problem is kept."""
    return folder / "networks" / (f"{name}-{shift}" if shift else name)


def trained(name: str, folder: Path, shift: int = 0) -> Any:
    """The network of a problem, from the folder if it is there; otherwise with seeds of its own for every `shift`."""
    import nsmbayes as nsm

    path = network_path(folder, name, shift)
    if path.exists():
        return nsm.load(path)
    if name in PROBLEMS:
        problem = PROBLEMS[name]
        prior = nsm.GaussianPrior(problem.mean, np.square(problem.sd))
        theta = np.asarray(prior.sample((50_000,), seed=400 + shift))
        x, steps = problem.simulator(np.random.default_rng([401 + shift, 17]), theta), problem.grid_steps
    else:
        task = nsm.tasks.get(name)
        prior, steps = task.prior, task.grid_steps
        theta, x = task.simulate(100_000, seed=400 + shift, progress=False)
    method = nsm.NSMBayes(prior, grid_steps=steps).append_simulations(theta, x).train(shift, progress=False)
    method.save(path, overwrite=True)
    return method
