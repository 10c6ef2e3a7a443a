"""Certificates: their cost, and their bounds compared with the largest influence found in a search over outliers."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

import nsmbayes as nsm
from bench.timing import Row, timed
from nsmbayes.posteriors import GeneralisedPosterior
from nsmbayes.posteriors.influence import tilted_kl
from nsmbayes.robustness import certify, line, pif_delta, pif_kl
from nsmbayes.robustness.influence import losses_at
from nsmbayes.samplers import each_loss

TINY = {"simulations": 300, "epochs": 1, "points": 40, "draws": 10, "one_level": False}

_REPLACED = 50  # the observation that x^c replaces, one of the bulk
_REPEATS = 5

Search = Callable[[Float[np.ndarray, "k d_x"]], dict[str, Float[np.ndarray, " k"]]]


def run(
    simulations: int = 50_000, epochs: int = 20, points: int = 10_000, draws: int = 100, one_level: bool = True
) -> list[Row]:
    """g-and-k data with a tenth of the observations at -50, and one of the others moved to `points` places.

    `one_level` adds both methods with the paper's loss, at one noise level.
    """
    with warnings.catch_warnings():
        # observations outside the simulations are intended here, and `converged` is part of the results
        warnings.simplefilter("ignore", UserWarning)
        posteriors = _posteriors(simulations, epochs, one_level)
    nle = posteriors.pop("NLE")
    rows = [_row(name, posterior, points, draws) for name, posterior in posteriors.items()]
    return [*rows, _control(nle, posteriors["NSM-Bayes"])]


def _posteriors(simulations: int, epochs: int, one_level: bool) -> dict[str, Any]:
    task = nsm.tasks.get("gnk")
    x = task.observe(100, seed=1).x
    settings = nsm.TrainingSettings(max_epochs=epochs)
    options: dict[str, Any] = {"warmup": 200 if epochs > 1 else 10, "draws": 250 if epochs > 1 else 10}

    def trained(method: Any) -> Any:
        return method.append_simulations(*task.simulate(simulations, seed=0)).train(
            0, settings=settings, progress=False
        )

    nle = trained(nsm.NLE(task.prior, **options))
    options["calibration"] = None
    posteriors = {
        "NLE": nle.build_posterior(x),
        "NSM-Bayes-conj": trained(nsm.NSMBayesConj(task.prior)).build_posterior(x, beta=0.25),
        "NSM-Bayes": nsm.NSMBayes(task.prior, **options).adopt(nle).build_posterior(x),
        "NSM-Bayes-amortised": nsm.NSMBayesAmortised(task.prior, **options).adopt(nle).build_posterior(x),
    }
    if one_level:
        conj = trained(nsm.NSMBayesConj(task.prior, noise_levels=(0.0,)))
        robust = nsm.NSMBayes(task.prior, noise_levels=(0.0,), weight=nsm.weights.IMQ(zeta=2.0), **options).adopt(nle)
        posteriors["NSM-Bayes-conj, one level"] = conj.build_posterior(x, beta=0.25)
        posteriors["NSM-Bayes, one level, zeta = 2"] = robust.build_posterior(x)
    return posteriors


def _row(name: str, posterior: Any, points: int, draws: int) -> Row:
    """The cost of a certificate, and the largest influence found compared with its bound."""
    first = timed(certify, posterior)[0]
    later = [timed(certify, posterior) for _ in range(_REPEATS)]
    certificate = posterior.certificate
    allowed = {"kl": certificate.influence_bound}
    if "log_density_range" in certificate.constants:
        allowed["range"] = certificate.constants["log_density_range"]
    worst = _search(posterior, _measure(posterior, draws), points)
    return Row(
        what=f"certificate, {name}",
        first_s=first,
        later_s=float(np.median([wall for wall, _ in later])),
        later_cpu_s=float(np.median([cpu for _, cpu in later])),
        repeats=_REPEATS,
        detail={
            "converged": posterior.converged,
            "robust": certificate.robust,
            "assumption": certificate.assumption,
            "searched": points,
            "certified": allowed,
            "at_draws": None if certificate.at_draws is None else certificate.at_draws._asdict(),
            "largest_found": worst,
            "certified_over_found": {key: allowed[key] / worst[key] for key in allowed},
            "exceeded": any(worst[key] > allowed[key] for key in allowed),
        },
    )


def _measure(posterior: Any, draws: int) -> Search:
    """KL divergence and, from draws, the range of the change in log density, as functions of x^c."""
    if not isinstance(posterior, GeneralisedPosterior):
        return lambda x: {"kl": pif_kl(posterior, x, replace=_REPLACED).kl}
    theta = posterior.thinned(draws)
    replaced = each_loss(posterior.target, theta)[:, _REPLACED : _REPLACED + 1]

    def measure(x: Float[np.ndarray, "k d_x"]) -> dict[str, Float[np.ndarray, " k"]]:
        change = posterior.beta * (replaced - losses_at(posterior, x, theta))
        return {"kl": tilted_kl(change)[0], "range": np.ptp(change, axis=0)}

    return measure


def _search(posterior: Any, measure: Search, points: int) -> dict[str, float]:
    """Search random places at all distances, followed by three rounds ever closer to the best of them."""
    rng, (location, scatter) = np.random.default_rng(0), posterior.location_scatter
    root = np.linalg.cholesky(scatter)
    size = points // 4
    y = rng.standard_normal((size, len(location))) * np.geomspace(1e-2, 1e8, size)[:, None]
    worst: dict[str, float] = {}
    for spread in (0.5, 0.1, 0.02, 0.0):
        found = measure(location + y @ root.T)
        worst = {key: max(worst.get(key, 0.0), float(values.max())) for key, values in found.items()}
        best = y[np.argsort(found["kl"])[-max(1, size // 50) :]]
        y = best[rng.integers(len(best), size=size)]
        y = y * np.exp(spread * rng.standard_normal((size, 1))) + spread * rng.standard_normal(y.shape)
    return worst


def _control(nle: Any, ours: Any) -> Row:
    """PIF_Delta of NLE, which is unbounded by Theorem 1, as the outlier moves away, compared with NSM-Bayes."""
    distances = [1e2, 1e3, 1e4, 1e5, 1e6]
    x = line(ours, distances)
    start = time.perf_counter()
    influence = {"NLE": pif_delta(nle, x).total_variation, "NSM-Bayes": pif_delta(ours, x).total_variation}
    first = time.perf_counter() - start
    wall, cpu = timed(pif_delta, nle, x)
    return Row(
        what="PIF_Delta of NLE, 5 places",
        first_s=first,
        later_s=wall,
        later_cpu_s=cpu,
        repeats=1,
        detail={"distances": distances} | {name: values.tolist() for name, values in influence.items()},
    )
