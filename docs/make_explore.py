"""Write docs/static/explore.html, a page without a server: `python docs/make_explore.py`.

A method is trained on the Gaussian task, and the statistics of one observation are tabulated along the axis, for a few
values of zeta: what the page adds up is then closed form. `--check` compares the page with the package again: it takes
the statistics from the page, and everything else from the saved numbers in it.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import nsmbayes as nsm
from nsmbayes.losses.statistics import DataStatistics, each_loss
from nsmbayes.weights import Weighting

DOCS = Path(__file__).parent
PAGE, TEMPLATE = DOCS / "static" / "explore.html", DOCS / "explore_template.html"
ZETAS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
REACH, BEND, COUNT = 60.0, 1.5, 481  # scales that the tables reach to, up to which they are even, and their rows
ROWS, SIMULATIONS, SEED = 40, 50_000, 0
MOST_KB = 500
WITHIN = 0.02  # posterior standard deviations by which the page may be off


def model() -> tuple[dict[str, Any], Any]:
    """What the page needs to know, and the posterior that it is about."""
    task = nsm.tasks.get("gaussian")
    method = nsm.NSMBayesConj(task.prior, excess=None, parameter_names=task.parameter_names)
    method.append_simulations(*task.simulate(SIMULATIONS, seed=SEED, progress=False)).train(SEED, progress=False)
    x = np.round(task.observe(ROWS, seed=2).x, 3)
    posterior = method.build_posterior(x, seed=SEED)
    (location,), ((variance,),) = posterior.location_scatter
    scale = float(np.sqrt(variance))
    y = BEND * np.sinh(np.linspace(-1, 1, COUNT) * np.arcsinh(REACH / BEND))
    at = (location + scale * y)[:, None]
    tables, certificates = [], []
    for zeta in ZETAS:
        weight = dataclasses.replace(method.weight, zeta=zeta)
        recipe = dataclasses.replace(posterior.statistics.recipe, weight=weight)
        loss = recipe.around(posterior.statistics.loss.centre)
        A, B, _ = (np.concatenate(parts) for parts in zip(*each_loss(loss, at), strict=True))
        w = Weighting(weight, posterior.statistics.loss.centre).at(at)
        tables.append(np.column_stack([A[:, 0, 0], A[:, 0, 1], A[:, 1, 1], B, w]))
        certificate = method.build_posterior(x, beta=posterior.beta, weight=weight, seed=SEED).certificate
        certificates.append({"robust": certificate.robust, "verdict": certificate.verdict})
    shown = [[float(m - 6 * s), float(m + 6 * s)] for m, s in zip(posterior.mean, posterior.std, strict=True)]
    shown[0][1], shown[1][1] = shown[0][1] + 2, shown[1][1] + 1  # where the likelihood goes
    low, high = float(x.min()), float(x.max())
    found = {
        "names": list(task.parameter_names),
        "x": x[:, 0].tolist(),
        "range": [round(low - 0.3 * (high - low)), round(high + 0.5 * (high - low))],
        "shown": shown,
        "location": float(location),
        "scale": scale,
        "reach": REACH,
        "bend": BEND,
        "step": 2 * float(np.arcsinh(REACH / BEND)) / (COUNT - 1),
        "count": COUNT,
        "zetas": ZETAS,
        "zeta": ZETAS.index(method.weight.zeta),
        "beta": posterior.beta,
        "resolution": posterior.resolution,
        "prior": {"mean": task.prior.mean.tolist(), "sd": task.prior.std.tolist()},
        "certificates": certificates,
        "tables": [[[float(f"{value:.6g}") for value in row] for row in table] for table in tables],
        "posterior": {"mean": posterior.mean.tolist(), "sd": posterior.std.tolist()},
        "checks": [],
    }
    for row, place, zeta in ((0, 3.0, 2), (5, 25.0, 0), (7, -4.0, 5)):
        moved = x.copy()
        moved[row] = place
        weight = dataclasses.replace(method.weight, zeta=ZETAS[zeta])
        recipe = dataclasses.replace(posterior.statistics.recipe, weight=weight)
        statistics = DataStatistics.of(recipe, moved, posterior.statistics.loss.centre)
        mean, sd = moments(found, statistics.total.A, statistics.total.B)
        found["checks"].append({"row": row, "x": place, "zeta": zeta, "mean": mean.tolist(), "sd": sd.tolist()})
    return found, posterior


def moments(found: dict[str, Any], A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviations of the posterior with a quadratic loss."""
    from nsmbayes.losses import Quadratic
    from nsmbayes.losses.conjugacy import gaussian_posterior

    prior = nsm.GaussianPrior(found["prior"]["mean"], np.square(found["prior"]["sd"]))
    mean, precision = gaussian_posterior(prior, Quadratic(A, B, np.zeros(())), found["beta"], found["resolution"])
    return mean, np.sqrt(np.diag(np.linalg.inv(precision)))


def interpolated(found: dict[str, Any], x: np.ndarray, zeta: int) -> tuple[np.ndarray, np.ndarray]:
    """A and B of observations as the page has them: between the rows of its tables."""
    y = np.clip((x - found["location"]) / found["scale"], -found["reach"], found["reach"])
    t = np.arcsinh(y / found["bend"]) / found["step"] + (found["count"] - 1) / 2
    table = np.asarray(found["tables"][zeta])
    a, b, c, p, q, _ = (np.interp(t, np.arange(len(table)), column).sum() for column in table.T)
    return np.array([[a, b], [b, c]]), np.array([p, q])


def read(path: Path = PAGE) -> dict[str, Any]:
    """What is in the page."""
    return json.loads(path.read_text(encoding="utf-8").split('id="model">')[1].split("</script>")[0])


def errors(found: dict[str, Any]) -> list[float]:
    """How far the page is from the package for each stored check, in posterior standard deviations."""
    off = []
    for check in found["checks"]:
        x = np.array(found["x"])
        x[check["row"]] = check["x"]
        mean, sd = moments(found, *interpolated(found, x, check["zeta"]))
        exact = np.array(check["sd"])
        off.append(float(max(np.abs(mean - check["mean"]).max() / exact.min(), np.abs(sd / exact - 1).max())))
    return off


def main() -> int:
    """Write the page, or check the one that is there."""
    parser = argparse.ArgumentParser(description="Write docs/static/explore.html.")
    parser.add_argument("--check", action="store_true", help="compare the page that is there, and write nothing")
    if not parser.parse_args().check:
        found, _ = model()
        text = TEMPLATE.read_text(encoding="utf-8").replace("/*MODEL*/", json.dumps(found, separators=(",", ":")))
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
    size, off = PAGE.stat().st_size / 1e3, max(errors(read()))
    print(f"{PAGE.relative_to(DOCS)}: {size:.0f} kB, at most {off:.2g} posterior standard deviations off")
    return int(size > MOST_KB or off > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
