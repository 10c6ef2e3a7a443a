"""NSM-Bayes: Theorem 2 with explicit constants, for mixtures and flows, at one noise level or many."""

import dataclasses

import numpy as np
from jaxtyping import Float

from nsmbayes.posteriors.data_loss import NSMLoss
from nsmbayes.posteriors.generalised import GeneralisedPosterior
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.flow import NotCovered, flow_growth, noisy_flow_growth
from nsmbayes.robustness.growth import Growth, LossBounds, largest_zeta, loss_bounds, metric, vanishes
from nsmbayes.robustness.mixture import COVERED, mixture_growth
from nsmbayes.robustness.parts import all_finite, check_scatter, check_weight, notes
from nsmbayes.robustness.prior_tails import Tails, tails
from nsmbayes.robustness.rounding import up
from nsmbayes.robustness.weight_bounds import WeightBounds, weight_bounds
from nsmbayes.surrogates import MaskedAutoregressiveFlow, MixtureDensityNetwork, NoisyFlow
from nsmbayes.weights import IMQ


def certify_nsm(posterior: GeneralisedPosterior, loss: NSMLoss) -> Certificate:
    """Which of A1, A2, A4 and A4' hold, and the constants."""
    weight, centre = posterior._trust
    bounds, prior = weight_bounds(weight), tails(posterior.target.prior.distribution)
    levels = np.unique(np.asarray(loss.h))
    metrics = [at for h in levels if (at := metric(centre, loss.frame, float(h))) is not None]
    regular = len(metrics) == len(levels)
    checks = {"A1": check_weight(weight, bounds)}
    try:
        growths = _growths(loss, np.asarray(centre.location), levels)
        checks["A2"] = Check(True, "what is left of it is that the gradient of the true density of x is integrable")
        checks["A4"] = Check(False, "it could not be shown without the rest")
    except NotCovered as reason:
        growths = []
        checks["A2"] = Check(reason.smooth, "the surrogate is smooth" if reason.smooth else str(reason))
        checks["A4"] = Check(False, str(reason))
    constants, vanishing = {}, False
    if bounds is not None and growths and regular:
        results = [loss_bounds(growth, bounds, at) for growth, at in zip(growths, metrics, strict=True)]
        checks["A4"] = _check_growth(growths, results, bounds)
        constants = _constants(growths, results, _shares(loss, levels))
        vanishing = all(vanishes(growth, bounds) for growth in growths)
    checks["A4'"] = _check_powers(checks["A4"], imq=type(weight) is IMQ, light=prior.light)
    checks["prior"] = _check_prior(prior)
    checks["scatter"] = check_scatter(centre, regular=regular)
    certificate = Certificate(
        theorem="Theorem 2" + (" and the proposition on noise levels" if levels[0] > 0 else ""),
        checks=checks,
        assumption="A4'" if checks["A4'"].holds else "A4" if checks["A4"].holds else None,
        constants=constants,
        vanishing=vanishing,
        notes=notes(centre, posterior.x),
    )
    return _with_influence(certificate, posterior.beta) if certificate.robust else certificate


def _growths(loss: NSMLoss, origin: Float[np.ndarray, " d_x"], levels: Float[np.ndarray, " levels"]) -> list[Growth]:
    """The growth of the surrogate at each level. Raises `NotCovered` where there is no proof."""
    surrogate, kind = loss.surrogate, type(loss.surrogate)
    if not all_finite(surrogate):
        raise NotCovered("the network has weights that are NaN or infinite")
    if isinstance(surrogate, COVERED) and kind in COVERED:
        return [mixture_growth(surrogate, loss.frame, origin, float(h)) for h in levels]
    if isinstance(surrogate, MaskedAutoregressiveFlow) and kind is MaskedAutoregressiveFlow:
        if levels.any():
            raise NotCovered("a flow that was not trained with noise says nothing about noisy data", smooth=True)
        return [flow_growth(surrogate, loss.frame, origin)]
    if isinstance(surrogate, NoisyFlow) and (kind, type(surrogate.base)) == (NoisyFlow, MixtureDensityNetwork):
        return [noisy_flow_growth(surrogate, loss.frame, origin, float(h)) for h in levels]
    if kind.__name__ == "SbiMixture":
        raise NotCovered(
            "the precisions of sbi's mixture are unbounded in theta: Proposition 2 asks for eigenvalues bounded below, "
            "without which the loss is not bounded below either",
            smooth=True,
        )
    raise NotCovered(f"nothing is known about the growth of a {kind.__name__}, nor whether it is smooth everywhere")


def _check_growth(growths: list[Growth], results: list[LossBounds], weight: WeightBounds) -> Check:
    if all(result.finite for result in results):
        return Check(True, "sup w |s|, sup |grad w^2| |s| and sup w^2 |lap| are finite, and do not depend on theta")
    zeta = min(map(largest_zeta, growths))
    given = "a constant weight does not fall" if weight.decay == 0 else f"zeta = {weight.zeta:g} is above that"
    return Check(False, f"this surrogate's growth in x needs a weight with zeta of at most {zeta:.6g}, and {given}")


def _check_powers(growth: Check, *, imq: bool, light: bool) -> Check:
    if not imq:
        return Check(None, "it is about inverse multiquadric weights; for this one there is A4")
    if not growth.holds:
        return Check(False, growth.why)
    if not light:
        return Check(False, "the prior is not known to be sub-exponential")
    return Check(True, "see K1 and K2; the powers of |theta| are 0")


def _check_prior(prior: Tails) -> Check:
    if prior.light:
        return Check(True, prior.why)
    return Check(
        False,
        f"{prior.why}, and A4' excludes it: the loss is bounded in theta, so that the posterior keeps the prior's "
        "tails, and a bounded density protects no mean that does not exist",
    )


def _shares(loss: NSMLoss, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels"]:
    """What an observation counts at each level, at most: the sum of |share| over its points there.

    In several dimensions every observation has nodes of its own; whichever is replaced, its nodes stay.
    """
    point, share = np.asarray(loss.point), np.abs(np.asarray(loss.share))
    level_of = np.broadcast_to(np.asarray(loss.h), loss.y.shape[:2]).ravel()[point]
    return np.array([up(float(np.where(level_of == h, share, 0).sum(axis=1).max())) for h in levels])


def _constants(
    growths: list[Growth], results: list[LossBounds], shares: Float[np.ndarray, " levels"]
) -> dict[str, float]:
    """Of the surrogate, the worst over the levels; f, g and the bounds of the loss, the sums over them.

    With f^2 + 2 f + 2 g summed over levels the proposition on noise levels gives A4 for the whole. K1 and K2 are those
    of A4': rho^k = (a + b |y|)^k <= (a + b)^k (1 + |y|^e) for k <= e.
    """
    names = growths[0].constants
    worst = {n: (min if n in ("lambda_min", "sigma_L") else max)(g.constants[n] for g in growths) for n in names}

    def power_constant(growth: Growth, polynomial: Float[np.ndarray, " degree"]) -> float:
        return up(float(sum(c * (growth.a + growth.b) ** k for k, c in enumerate(polynomial))))

    return worst | {
        "K1": max(power_constant(g, g.score) for g in growths),
        "K2": max(power_constant(g, p) for g in growths for p in (g.laplacian_below, g.laplacian_above)),
        "f": max(result.f for result in results),
        "g": max(result.g for result in results),
        "loss_low": up(float(sum(s * result.low for s, result in zip(shares, results, strict=True)))),
        "loss_high": up(float(sum(s * result.high for s, result in zip(shares, results, strict=True)))),
        "zeta_max": min(map(largest_zeta, growths)),
    }


def _with_influence(certificate: Certificate, beta: float) -> Certificate:
    """The influence bound: the loss of an observation lies between -loss_low and loss_high for all theta and x.

    Replacing one by another changes the log density, up to a constant, by a function whose range is at most
    R = 2 beta (loss_low + loss_high). The KL divergence is then at most R and, by Hoeffding's lemma, R^2 / 8.
    """
    reach = up(2 * beta * (certificate.constants["loss_low"] + certificate.constants["loss_high"]))
    return dataclasses.replace(
        certificate,
        constants=certificate.constants | {"log_density_range": reach},
        influence_bound=up(min(reach, reach**2 / 8)),
    )
