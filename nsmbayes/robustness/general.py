"""NSM-Bayes: Theorem 2 with explicit constants, for mixtures and flows, at one noise level or many."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from nsmbayes.losses import NSMLoss
from nsmbayes.losses.corrected import uncorrected
from nsmbayes.posteriors import AmortisedPosterior, GeneralisedPosterior
from nsmbayes.robustness.at_draws import influence_at_draws, rule_weights
from nsmbayes.robustness.bounds.growth import (
    Growth,
    LossBounds,
    NotCovered,
    largest_zeta,
    loss_bounds,
    metric,
    vanishes,
)
from nsmbayes.robustness.bounds.interpolation import interpolated_growths
from nsmbayes.robustness.bounds.prior_tails import Tails, tails
from nsmbayes.robustness.bounds.rounding import up
from nsmbayes.robustness.bounds.surrogates import surrogate_growths
from nsmbayes.robustness.bounds.weights import WeightBounds, weight_bounds
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.parts import all_finite, check_scatter, check_weight, notes
from nsmbayes.weights import IMQ


def certify_nsm(posterior: GeneralisedPosterior) -> Certificate:
    """Certify a posterior whose loss is an `NSMLoss`: check A1, A2, A4 and A4', and compute the constants."""
    loss: NSMLoss = uncorrected(posterior.target.loss)  # pyright: ignore[reportAssignmentType]
    return _certified(posterior, [loss], lambda growths, _: growths)


def certify_interpolated(posterior: AmortisedPosterior) -> Certificate:
    """Certify a posterior whose loss is an `InterpolatedLoss`: the theorem holds for the interpolated loss."""
    interpolation = posterior.summarised.loss.interpolation
    losses = [piece.block(0) for piece in posterior.summarised.pieces]  # all blocks of a piece have the same nodes
    return _certified(posterior, losses, lambda growths, origin: interpolated_growths(growths, interpolation, origin))


def _certified(
    posterior: GeneralisedPosterior,
    losses: list[NSMLoss],
    of_score: Callable[[list[Growth], Float[np.ndarray, " d_x"]], list[Growth]],
) -> Certificate:
    """Certify a posterior; `of_score` computes the growth of the score in the loss from that of the surrogate."""
    loss = losses[0]
    weight, centre = posterior.setting.weighting
    bounds, prior = weight_bounds(weight), tails(posterior.target.prior.distribution)
    levels, origin = np.unique(np.asarray(loss.h)), np.asarray(centre.location)
    metrics = [at for h in levels if (at := metric(centre, loss.frame, float(h))) is not None]
    regular = len(metrics) == len(levels)
    checks = {"A1": check_weight(weight, bounds)}
    try:
        growths = of_score(_growths(loss, origin, levels), origin)
        checks["A2"] = Check(
            True, "the surrogate is smooth; the gradient of the true density of x is assumed to be integrable"
        )
        checks["A4"] = Check(False, "it could not be proved without the rest")
    except NotCovered as reason:
        growths = []
        checks["A2"] = Check(reason.smooth, "the surrogate is smooth" if reason.smooth else str(reason))
        checks["A4"] = Check(False, str(reason))
    constants, vanishing = {}, False
    if bounds is not None and growths and regular:
        results = [loss_bounds(growth, bounds, at) for growth, at in zip(growths, metrics, strict=True)]
        checks["A4"] = _check_growth(growths, results, bounds)
        counts = np.max([_level_weights(each, levels) for each in losses], axis=0)
        constants = _constants(growths, results, counts)
        vanishing = all(vanishes(growth, bounds) for growth in growths)
    checks["A4'"] = _check_powers(checks["A4"], imq=type(weight) is IMQ, light=prior.light)
    checks["prior"] = _check_prior(prior)
    checks["scatter"] = check_scatter(centre, posterior.dequantised, regular=regular)
    certificate = Certificate(
        theorem="Theorem 2" + (" and the proposition on noise levels" if levels[0] > 0 else ""),
        checks=checks,
        assumption="A4'" if checks["A4'"].holds else "A4" if checks["A4"].holds else None,
        constants=constants,
        vanishing=vanishing,
        notes=notes(centre, posterior),
    )
    if not certificate.robust:
        return certificate
    assert bounds is not None  # otherwise A1 fails
    at_draws = influence_at_draws(posterior, losses, bounds, metrics)
    return dataclasses.replace(_with_influence(certificate, posterior.beta), at_draws=at_draws)


def _growths(loss: NSMLoss, origin: Float[np.ndarray, " d_x"], levels: Float[np.ndarray, " levels"]) -> list[Growth]:
    """The growth of the surrogate at each level. Raises `NotCovered` if there is no proof."""
    if not all_finite(loss.surrogate):
        raise NotCovered("the network has weights that are NaN or infinite")
    return surrogate_growths(loss.surrogate, loss.frame, origin, levels)


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


def _level_weights(loss: NSMLoss, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels"]:
    """Largest total weight of an observation at each level: the sum of |quadrature weight| over its nodes there.

    In several dimensions every observation has its own nodes, which are kept if it is replaced.
    """
    return sum(rule_weights(loss, levels)).max(axis=0)  # pyright: ignore[reportAttributeAccessIssue]


def _constants(
    growths: list[Growth], results: list[LossBounds], level_weights: Float[np.ndarray, " levels"]
) -> dict[str, float]:
    """Constants of the surrogate, the worst over the levels, and of the loss: f, g and its bounds, summed over levels.

    With f^2 + 2 f + 2 g summed over levels, the proposition on noise levels gives A4 for the sum. K1 and K2 are the
    constants of A4': rho^k = (a + b |y|)^k <= (a + b)^k (1 + |y|^e) for k <= e.
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
        "loss_low": up(float(sum(w * result.low for w, result in zip(level_weights, results, strict=True)))),
        "loss_high": up(float(sum(w * result.high for w, result in zip(level_weights, results, strict=True)))),
        "zeta_max": min(map(largest_zeta, growths)),
    }


def _with_influence(certificate: Certificate, beta: float) -> Certificate:
    """Add the influence bound: the loss of an observation lies between -loss_low and loss_high for all theta and x.

    Replacing an observation changes the log density, up to a constant, by a function whose range is at most
    R = 2 beta (loss_low + loss_high). The KL divergence is then at most R and, by Hoeffding's lemma, R^2 / 8.
    """
    log_range = up(2 * beta * (certificate.constants["loss_low"] + certificate.constants["loss_high"]))
    return dataclasses.replace(
        certificate,
        constants=certificate.constants | {"log_density_range": log_range},
        influence_bound=up(min(log_range, log_range**2 / 8)),
    )
