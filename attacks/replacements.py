"""Replace observations by anything, fit everything again, and look how far the posterior can be moved.

    python attacks/replacements.py --tries 1000 --method nsm-bayes

One row is replaced by a value anywhere between a tenth of a scale and 1e12 scales from the centre; then k rows, up to
30 %, by a cluster, by values on both sides, or by scattered ones. Location, scatter, factors by number and draws are
fitted again every time. The shift is that of the posterior mean, in posterior standard deviations of the clean data, so
that sampling error alone gives about 0.1. Prints the largest shifts, and what was replaced, as JSON.
"""

import argparse
import json
import sys
import warnings
from typing import Any

import numpy as np

import nsmbayes as nsm

PRIOR = nsm.GaussianPrior(np.zeros(2), np.diag([9.0, 0.25]))
METHODS = {"nsm-bayes": nsm.NSMBayes, "nsm-bayes-conj": nsm.NSMBayesConj}
KINDS = ("one", "cluster", "both", "scattered")
MOST = 0.3  # of the rows


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Normal observations of unknown mean and log standard deviation, one per row of theta."""
    return theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 1))


def attack(clean: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, Any]]:
    """Data with some rows replaced, and what was done."""
    n = len(clean)
    k = 1 if kind == "one" else int(rng.integers(2, int(MOST * n) + 1))
    distance = 10 ** rng.uniform(-1, 12 if kind == "one" else 3) * rng.choice([-1, 1])
    spread = 10 ** rng.uniform(-3, 0)
    rows = rng.permutation(n)[:k]
    x = clean.copy()
    if kind == "scattered":
        x[rows] = abs(distance) * rng.standard_cauchy((k, 1))
    else:
        sides = rng.choice([-1, 1], (k, 1)) if kind == "both" else 1
        x[rows] = np.median(clean) + np.std(clean) * (sides * distance + spread * rng.standard_normal((k, 1)))
    return x, {"kind": kind, "rows": k, "distance": float(distance), "spread": float(spread)}


def run(method: str, tries: int, n: int = 60, seed: int = 0) -> dict[str, Any]:
    """The largest shift of each kind, over `tries` attacks."""
    rng = np.random.default_rng(seed)
    theta = PRIOR.sample(10_000, seed=seed)
    trained = METHODS[method](PRIOR).append_simulations(theta, simulate(theta, rng)).train(seed, progress=False)
    clean = simulate(np.tile([0.7, 0.1], (n, 1)), rng)
    options: dict[str, Any] = {"beta": 0.5 if method == "nsm-bayes-conj" else 1.0, "seed": seed}
    reference = trained.build_posterior(clean, **options)
    worst: dict[str, dict[str, Any]] = {kind: {"shift": 0.0} for kind in KINDS}
    certified = 0
    for number in range(tries):
        x, done = attack(clean, KINDS[number % len(KINDS)], rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            posterior = trained.build_posterior(x, **options)
        certified += posterior.certificate.robust
        shift = float(np.max(np.abs(posterior.mean - reference.mean) / reference.std))
        if not shift <= worst[done["kind"]]["shift"]:  # NaN too
            worst[done["kind"]] = done | {"shift": shift}
            print(json.dumps(worst[done["kind"]]), file=sys.stderr, flush=True)
    bound = reference.certificate.influence_bound
    return {"method": method, "tries": tries, "n": n, "certified": certified, "bound_kl": bound, "worst": worst}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", choices=sorted(METHODS), default="nsm-bayes")
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(json.dumps(run(chosen.method, chosen.tries, seed=chosen.seed), indent=2))
