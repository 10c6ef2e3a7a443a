"""NSM-Bayes-conj: Theorem 3 with explicit constants, and a bound on PIF_KL."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.family_loss import FamilyLoss
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.family import family_bounds
from nsmbayes.robustness.growth import Metric, metric
from nsmbayes.robustness.line_search import Pull, pull_anywhere, pull_on_the_line
from nsmbayes.robustness.parts import all_finite, check_scatter, check_weight, notes
from nsmbayes.robustness.rounding import eigenvalue_range, up
from nsmbayes.robustness.weight_bounds import WeightBounds, weight_bounds
from nsmbayes.surrogates import ExponentialFamily, Frame, TanhNetwork


class _Level(NamedTuple):
    """The loss at one noise level, and what it counts for an observation."""

    share: float
    loss: FamilyLoss
    at: Metric


def certify_conjugate(posterior: ConjugatePosterior) -> Certificate:
    """Which of A1, A2, A3, A4 and A5 hold, and the constants."""
    loss, centre = posterior.point_loss, posterior.point_loss.centre
    weight, losses = weight_bounds(loss.weight), _losses(loss)
    levels = [_Level(share, part, at) for share, part in losses if (at := _metric(part)) is not None]
    regular = len(levels) == len(losses)
    checks = {"A1": check_weight(loss.weight, weight)} | _check_families([part.family for _, part in losses])
    constants: dict[str, float] = {}
    bound, why = None, "it could not be shown without the rest"
    if weight is not None and regular and checks["A3"].holds:
        constants = _constants(levels, weight, posterior.mean)
        bound = _influence_bound(posterior, levels, weight)
        why = "tanh and its derivatives are bounded, hence those of T and b, for this weight and every bounded one"
    shown = bound is not None and all(map(math.isfinite, (bound, *constants.values())))
    checks["A4"] = Check(shown, "by the lemma that links it to A5: b is bounded too, and the prior is Gaussian")
    checks["A5"] = Check(shown, why)
    checks["prior"] = Check(True, "it is Gaussian")
    checks["scatter"] = check_scatter(centre, regular=regular)
    certificate = Certificate(
        theorem="Theorem 3" + (" and the proposition on noise levels" if len(losses) > 1 else ""),
        checks=checks,
        constants=constants,
        assumption="A5" if shown else None,
        influence_bound=bound,
        vanishing=weight is not None and weight.decay > 0,
        notes=notes(centre, posterior.x),
    )
    return certificate if certificate.robust else certificate.without_bound()


def _losses(loss: FamilyLoss) -> list[tuple[float, FamilyLoss]]:
    """The loss at each noise level, with its share; nothing for a loss that is not known here."""
    return [(1.0, loss)] if type(loss) is FamilyLoss else []


def _metric(loss: FamilyLoss) -> Metric | None:
    return metric(loss.centre, Frame(loss.centre.location, loss.basis), 0.0)  # pyright: ignore[reportArgumentType]


def _check_families(families: list[ExponentialFamily]) -> dict[str, Check]:
    known = bool(families) and all(
        type(family) is ExponentialFamily and type(family.T) is type(family.b) is TanhNetwork for family in families
    )
    if known and all(map(all_finite, families)):
        smooth = "tanh is smooth. Bounded T and b make no density, but neither the loss nor the theorem needs one"
        return {"A2": Check(True, smooth), "A3": Check(True, "T and b are networks with one tanh layer")}
    why = "the family has weights that are NaN or infinite" if known else "T and b are not one-layer tanh networks"
    return {"A2": Check(False, why), "A3": Check(False, why)}


def _constants(levels: list[_Level], weight: WeightBounds, theta: Float[np.ndarray, " d_theta"]) -> dict[str, float]:
    """Those of A5, with w <= 1, and of the lemma that links it to A4; the largest over the levels."""

    def of_level(level: _Level) -> dict[str, float]:
        bounds = family_bounds(level.loss.family, np.asarray(level.loss.basis), theta)
        T, b, gradient = bounds.T, bounds.b, up(weight.steepest * level.at.steepness)
        return {
            "sup_dT": T.first,
            "sup_d2T": T.second,
            "sup_db": b.first,
            "sup_d2b": b.second,
            "C": up(max(math.sqrt(T.first * b.first), math.sqrt(T.second), T.first)),
            "C_prime": up(T.first * gradient),
            "C1_lemma": up(b.first * max(1.0, gradient)),
            "C2_lemma": b.second,
        }

    each = [of_level(level) for level in levels]
    return {name: max(constants[name] for constants in each) for name in each[0]}


def _influence_bound(posterior: ConjugatePosterior, levels: list[_Level], weight: WeightBounds) -> float:
    """An upper bound of PIF_KL over all x, whichever observation j it replaces.

    In coordinates of theta in which the precision P is the identity: let E_j be the part of observation j in it, E that
    of x, and v = w^2 (dT s + lap T) + dT grad w^2 its pull on the mean, s the score at the posterior mean. Then
    2 KL = tr(E - E_j) - log det(I - E_j + E) + 4 beta^2 (v - v_j)' (I - E_j + E)^-1 (v - v_j).
    E and E_j are nonnegative with traces of at most t = 2 beta sup w^2 |dT|^2, so that the first two terms are at most
    t + sum(-log(1 - e_i) - e_i), e_i the eigenvalues of E_j. No 1 - e_i is below 1 - t, nor below the prior's share.
    """
    k, change = 2 * posterior.beta, np.linalg.inv(np.linalg.cholesky(posterior._precision))
    pulls = [_pull(level, weight, posterior.mean, change) for level in levels]
    precision, mean = (up(sum(level.share * p[i] for level, p in zip(levels, pulls, strict=True))) for i in (0, 1))
    share = change @ posterior.prior.precision @ change.T
    trace = up(k * precision)
    rest = max(eigenvalue_range((share + share.T) / 2)[0], 1 - trace)
    if not rest > 0:
        return math.inf
    return up(0.5 * (trace + up(_lost(trace, rest, posterior.dim)) + (2 * k * mean) ** 2 / rest))


def _pull(
    level: _Level,
    weight: WeightBounds,
    theta: Float[np.ndarray, " d_theta"],
    change: Float[np.ndarray, "d_theta d_theta"],
) -> Pull:
    """The pull of one observation at one level, by the sharpest bound there is."""
    family, basis = level.loss.family, np.asarray(level.loss.basis)
    bounds = family_bounds(family, basis, theta, change)
    anywhere = pull_anywhere(bounds, weight, level.at)
    if len(basis) > 1 or family.scale_x.asinh:
        return anywhere
    location = float(np.asarray(level.loss.centre.location)[0])
    sharper = pull_on_the_line(family, location, float(basis[0, 0]), theta, change, bounds, weight, level.at)
    return Pull(*map(min, anywhere, sharper))


def _lost(trace: float, rest: float, dim: int) -> float:
    """sup of sum(-log(1 - e_i) - e_i) over eigenvalues with 1 - e_i >= rest and a sum of at most `trace`.

    It is convex in e, hence largest with as many eigenvalues as possible at their limit 1 - rest.
    """
    full = min(dim, math.ceil(trace / (1 - rest))) if rest < 1 else 0
    return full * (-math.log(rest) - (1 - rest))
