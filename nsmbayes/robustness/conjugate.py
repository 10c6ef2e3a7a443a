"""NSM-Bayes-conj: Theorem 3 with explicit constants, and a bound on PIF_KL."""

import math

import numpy as np
from jaxtyping import Float

from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.family_loss import each_loss
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.family import FamilyBounds, family_bounds
from nsmbayes.robustness.growth import metric
from nsmbayes.robustness.parts import all_finite, check_scatter, check_weight, notes
from nsmbayes.robustness.rounding import eigenvalue_range, up
from nsmbayes.robustness.weight_bounds import weight_bounds
from nsmbayes.surrogates import ExponentialFamily, Frame, TanhNetwork

_EXACT_ROWS = 20_000  # beyond this many observations the bound is computed without a look at each of them


def certify_conjugate(posterior: ConjugatePosterior) -> Certificate:
    """Which of A1, A2, A3, A4 and A5 hold, and the constants."""
    loss = posterior.point_loss
    family, centre, basis = loss.family, loss.centre, np.asarray(loss.basis)
    weight = weight_bounds(loss.weight)
    at = metric(centre, Frame(np.asarray(centre.location), basis), 0.0)  # pyright: ignore[reportArgumentType]
    checks = {"A1": check_weight(loss.weight, weight)} | _check_family(family)
    constants: dict[str, float] = {}
    bound, why = None, "it could not be shown without the rest"
    if weight is not None and at is not None and checks["A3"].holds:
        bounds = family_bounds(family, basis, posterior.mean)
        gradient = up(weight.steepest * at.steepness)
        constants = _constants(bounds, gradient)
        bound = _influence_bound(posterior, bounds, gradient)
        why = "tanh and its derivatives are bounded, hence those of T and b, for this weight and every bounded one"
    shown = bound is not None and all(map(math.isfinite, constants.values()))
    checks["A4"] = Check(shown, "by the lemma that links it to A5: b is bounded too, and the prior is Gaussian")
    checks["A5"] = Check(shown, why)
    checks["prior"] = Check(True, "it is Gaussian")
    checks["scatter"] = check_scatter(centre, regular=at is not None)
    certificate = Certificate(
        theorem="Theorem 3",
        checks=checks,
        constants=constants,
        assumption="A5" if shown else None,
        influence_bound=bound,
        vanishing=weight is not None and weight.decay > 0,
        notes=notes(centre, posterior.weights),
    )
    return certificate if certificate.robust else certificate.without_bound()


def _check_family(family: ExponentialFamily) -> dict[str, Check]:
    known = type(family) is ExponentialFamily and type(family.T) is type(family.b) is TanhNetwork
    if known and all_finite(family):
        smooth = "tanh is smooth. Bounded T and b make no density, but neither the loss nor the theorem needs one"
        return {"A2": Check(True, smooth), "A3": Check(True, "T and b are networks with one tanh layer")}
    why = "the family has weights that are NaN or infinite" if known else "T and b are not one-layer tanh networks"
    return {"A2": Check(False, why), "A3": Check(False, why)}


def _constants(bounds: FamilyBounds, gradient: float) -> dict[str, float]:
    """Those of A5, with w <= 1, and of the lemma that links it to A4."""
    T, b = bounds.T, bounds.b
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


def _influence_bound(posterior: ConjugatePosterior, bounds: FamilyBounds, gradient: float) -> float:
    """An upper bound of PIF_KL over all x and over all observations j that x may replace.

    With P the precision, P_j that without observation j, A and B the coefficients of the loss of x and mu the mean,
    2 KL = tr((P_j + 2 beta A) P^-1) - d + log det P - log det(P_j + 2 beta A) + u' (P_j + 2 beta A)^-1 u,
    u = 2 beta ((B + A mu) - (B_j + A_j mu)), and A = w^2 dT dT' is nonnegative with a trace of at most sup |dT|^2.
    """
    T = bounds.T
    k, mean, precision = 2 * posterior.beta, posterior.mean, posterior._precision
    smallest = eigenvalue_range(precision)[0]
    prior_smallest = eigenvalue_range(posterior.prior.precision)[0]  # P_j is at least the prior's precision
    if min(smallest, prior_smallest) <= 0:
        return math.inf
    trace = up(k * T.first**2 / smallest)
    pull = up(T.first * bounds.score + T.laplacian + T.first * gradient)  # of |B + A mu|
    log_det = np.linalg.slogdet(precision)[1]
    if posterior.n > _EXACT_ROWS:
        shrunk = log_det - np.linalg.slogdet(posterior.prior.precision)[1]
        return up(0.5 * (trace + up(shrunk) + (2 * k * pull) ** 2 / prior_smallest))
    worst = -math.inf
    for A, B, _ in (part for block in posterior._data for part in each_loss(posterior.point_loss, block)):
        without = precision - k * A
        step = k * (pull + np.linalg.norm(B + A @ mean, axis=1))
        shrunk = log_det - np.linalg.slogdet(without)[1] - k * np.trace(np.linalg.solve(precision, A), axis1=1, axis2=2)
        worst = max(worst, float((shrunk + step**2 / _smallest(without, prior_smallest)).max()))
    return up(0.5 * (trace + up(worst)))


def _smallest(matrices: Float[np.ndarray, "n d d"], at_least: float) -> Float[np.ndarray, " n"]:
    """Lower bounds of the smallest eigenvalues, none of which is below `at_least`."""
    values = np.linalg.eigvalsh(matrices)
    return np.maximum(values[:, 0] - 1e-9 * values[:, -1], at_least)
