"""Replace observations by anything, fit everything again, and look how far the posterior can be moved.

One row of 40 is replaced by a value anywhere between a tenth of a scale and 1e12 scales from the centre; or k rows, up
to 30 %, by a cluster, by values on both sides, or by scattered ones. Location, scatter, factors by number and draws are
fitted again every time, at a learning rate that is kept. The shift is that of the posterior mean, in posterior standard
deviations of the clean data; sampling error alone gives about 0.1.

What must not happen: an error that is not a sentence; numbers that are not finite; one row that is far away and moves
a certified posterior by more than losing it could; rows that are far away and move a posterior far without a warning;
a divergence, with one row replaced and the weight as it stands, that is above the certified bound.
"""

import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import nsmbayes as nsm
from attacks.result import Result
from nsmbayes.robustness import pif_kl

PRIOR = nsm.GaussianPrior(np.zeros(2), np.diag([9.0, 0.25]))
KINDS = ("one", "cluster", "both", "scattered")
ROWS, MOST = 40, 0.3  # rows, and which part of them is replaced at most
FAR = {"one": 1e3, "cluster": 10.0, "both": 10.0, "scattered": 100.0}  # scales; Cauchy values are often small
BANDS = (1.0, 10.0, 1e3)
LOST_ROW, SILENT = 2.0, 3.0  # standard deviations; losing an extreme one of 40 rows gives about 0.9
_TOLD_EVERY = 500


def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Normal observations of unknown mean and log standard deviation, one per row of theta."""
    return theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 1))


def replaced(clean: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, Any]]:
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


def methods() -> dict[str, Any]:
    """Small networks and few draws: what is attacked is the way from data to a posterior."""
    small: dict[str, Any] = {"surrogate": nsm.MDN(components=3, hidden=(16, 16)), "draws": 125}
    return {
        "nsm-bayes": nsm.NSMBayes(PRIOR, **small),
        "nsm-bayes-amortised": nsm.NSMBayesAmortised(PRIOR, **small),
        "nsm-bayes-conj": nsm.NSMBayesConj(PRIOR, hidden=16),
    }


def run(name: str, count: int, seed: int) -> Result:
    """Attack one method `count` times."""
    result, rng, started = Result(), np.random.default_rng(seed), time.perf_counter()
    theta = PRIOR.sample(10_000, seed=seed)
    settings = nsm.TrainingSettings(max_epochs=30)
    method = (
        methods()[name].append_simulations(theta, simulate(theta, rng)).train(seed, settings=settings, progress=False)
    )
    clean = simulate(np.tile([0.7, 0.1], (ROWS, 1)), rng)
    build = functools.partial(method.build_posterior, beta=0.5 if name == "nsm-bayes-conj" else 1.0, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        reference = build(clean)
        seen: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
        singles: dict[int, list[float]] = {}  # values that one row was replaced by
        for number in range(count):
            x, done = replaced(clean, KINDS[number % len(KINDS)], np.random.default_rng((seed, number)))
            shift = _one(result, f"{number} {done}", functools.partial(build, x), reference, done)
            if shift is not None:
                seen[done["kind"]].setdefault(_band(abs(done["distance"])), []).append(shift)
            if done["kind"] == "one":
                row = int(np.flatnonzero((x != clean).any(axis=1))[0])
                singles.setdefault(row, []).append(float(x[row, 0]))
            if number % _TOLD_EVERY == 0:
                told = {"tried": number, "seconds": time.perf_counter() - started, **result.as_json()}
                print(json.dumps(told), file=sys.stderr, flush=True)
    certificate = reference.certificate
    result.detail = {
        "method": name,
        "rows": ROWS,
        "seconds": time.perf_counter() - started,
        "largest_shift": {
            kind: {band: {"tried": len(found), "largest": max(found)} for band, found in sorted(bands.items())}
            for kind, bands in seen.items()
        },
        "certified": certificate.robust,
        "influence_bound": certificate.influence_bound,
        "refitted": certificate.refitted,
        "largest_divergence_weight_as_it_stands": _frozen(result, reference, singles),
    }
    return result


def _one(result: Result, what: str, build: Callable[[], Any], reference: Any, done: dict[str, Any]) -> float | None:
    """Build one posterior, and judge it; how far it moved, or None."""
    try:
        posterior = build()
        mean, std = posterior.mean, posterior.std
    except nsm.InputError:
        result.outcomes["refused"] += 1
        return None
    except Exception as error:
        result.fail(what, f"{type(error).__name__}: {error}"[:300])
        return None
    if not (np.isfinite(mean).all() and np.isfinite(std).all()):
        result.fail(what, f"mean {mean}, standard deviation {std}")
        return None
    shift = float(np.max(np.abs(mean - reference.mean) / reference.std))
    far = abs(done["distance"]) >= FAR[done["kind"]]
    if far and done["kind"] == "one" and shift > LOST_ROW and posterior.certificate.robust:
        result.fail(what, f"one distant row moved a certified posterior by {shift:.2g} standard deviations")
    elif far and shift > SILENT and not posterior.warnings:
        result.fail(what, f"moved by {shift:.2g} standard deviations without a word")
    elif shift > SILENT:
        result.outcomes[f"moved by more than {SILENT:g}, " + ("far, with a warning" if far else "near")] += 1
    else:
        result.outcomes["moved by less"] += 1
    return shift


def _band(distance: float) -> str:
    edges = (0.0, *BANDS, np.inf)
    at = int(np.searchsorted(BANDS, distance))
    return f"{edges[at]:g} to {edges[at + 1]:g} scales"


def _frozen(result: Result, reference: Any, singles: dict[int, list[float]]) -> float:
    """The largest divergence with one row replaced and the weight as it stands; none may exceed what was certified."""
    bound, largest = reference.certificate.influence_bound, 0.0
    for row, values in singles.items():
        found = pif_kl(reference, np.array(values)[:, None], replace=row)
        largest = max(largest, float(found.kl.max()))
        result.outcomes["below the bound, with the weight as it stands"] += len(values)
        for value in np.array(values)[~(found.kl <= np.inf if bound is None else found.kl <= bound)]:
            result.fail(f"row {row} at {value:g}", f"a divergence above {bound}, which was certified")
    return largest


RUNS: dict[str, Callable[[int, int], Result]] = {
    f"replacements-{name}": functools.partial(run, name)
    for name in ("nsm-bayes", "nsm-bayes-amortised", "nsm-bayes-conj")
}
