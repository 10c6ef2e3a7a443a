"""NSM-Bayes-conj: Theorem 3 with explicit constants, and a bound on PIF_KL."""

import math
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes.losses.conjugacy import diagonalise
from nsmbayes.losses.statistics import DataSetLoss, FamilyLoss, NoisyFamilyLoss
from nsmbayes.posteriors import ConjugatePosterior
from nsmbayes.robustness.bounds.family import family_bounds
from nsmbayes.robustness.bounds.growth import Metric, metric
from nsmbayes.robustness.bounds.line_search import Pull, pull_anywhere, pull_on_the_line
from nsmbayes.robustness.bounds.rounding import eigenvalue_range, up
from nsmbayes.robustness.bounds.weights import WeightBounds, weight_bounds
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.parts import all_finite, check_scatter, check_weight, notes
from nsmbayes.robustness.refit import refitted_worst_case
from nsmbayes.surrogates import ExponentialFamily, Frame, NoisyFamily, TanhNetwork


class _Level(NamedTuple):
    """The loss at one noise level, with the quadrature weight of an observation there."""

    quadrature_weight: float
    loss: FamilyLoss
    at: Metric


def certify_conjugate(posterior: ConjugatePosterior) -> Certificate:
    """Certify a conjugate posterior: check A1, A2, A3, A4 and A5, and compute the constants."""
    loss, centre = posterior.statistics.loss, posterior.statistics.loss.centre
    weight, losses = weight_bounds(loss.weight), _losses(loss)
    levels = [_Level(counts, part, at) for counts, part in losses if (at := _metric(part)) is not None]
    regular = len(levels) == len(losses)
    checks = {"A1": check_weight(loss.weight, weight)} | _check_families([part.family for _, part in losses])
    constants: dict[str, float] = {}
    bound, why = None, "it could not be proved without the rest"
    if weight is not None and regular and checks["A3"].holds:
        constants = _constants(levels, weight, posterior.mean)
        bound, why = _influence_bound(posterior, levels, weight), "its constants are not finite"
    shown = bound is not None and all(map(math.isfinite, (bound, *constants.values())))
    lemma = "by the lemma that links it to A5: b is bounded too, and the prior is Gaussian"
    bounded = "tanh and its derivatives are bounded, hence those of T and b, for this weight and every bounded one"
    checks["A4"] = Check(shown, lemma if shown else why)
    checks["A5"] = Check(shown, bounded if shown else why)
    checks["prior"] = Check(True, "it is Gaussian")
    checks["scatter"] = check_scatter(centre, posterior.x, regular=regular)
    certificate = Certificate(
        theorem="Theorem 3" + (" and the proposition on noise levels" if len(losses) > 1 else ""),
        checks=checks,
        constants=constants,
        assumption="A5" if shown else None,
        influence_bound=bound,
        vanishing=weight is not None and weight.decay > 0,
        notes=notes(centre, posterior),
    )
    if not certificate.robust:
        return certificate.without_bound()
    return replace(certificate, refitted=refitted_worst_case(posterior))


def _losses(loss: DataSetLoss) -> list[tuple[float, FamilyLoss]]:
    """The loss at each noise level, with the largest quadrature weight of an observation; empty for an unknown loss."""
    if type(loss) is FamilyLoss:
        return [(1.0, loss)]
    networks = {type(loss.family.T), type(loss.family.b)}
    if type(loss) is not NoisyFamilyLoss or type(loss.family) is not NoisyFamily or networks != {TanhNetwork}:
        return []
    (level_of, _), noisy = loss.points(np.asarray(loss.centre.location)[None])
    level_of = level_of[noisy.node_index[0]]  # the same for every observation
    counts = np.abs(noisy.quadrature_weight[0])
    families = _at_every_noise(loss.family, jnp.asarray(loss.noise))
    parts = []
    for i in range(len(loss.noise_levels)):
        family, centre = jax.tree.map(lambda a, i=i: np.asarray(a)[i], (families, loss.smoothed))
        parts.append((up(float(counts[level_of == i].sum())), FamilyLoss(family, loss.weight, centre, loss.basis)))
    return parts


@eqx.filter_jit
def _at_every_noise(family: NoisyFamily, noise: Float[Array, "levels d_x"]) -> ExponentialFamily:
    return jax.vmap(family.with_noise)(noise)


def _metric(loss: FamilyLoss) -> Metric | None:
    return metric(loss.centre, Frame(loss.centre.location, loss.basis), 0.0)  # pyright: ignore[reportArgumentType]


def _check_families(families: list[ExponentialFamily]) -> dict[str, Check]:
    known = bool(families) and all(
        type(family) is ExponentialFamily and type(family.T) is type(family.b) is TanhNetwork for family in families
    )
    if known and all(map(all_finite, families)):
        smooth = "tanh is smooth. Bounded T and b give no normalised density, but neither loss nor theorem needs one"
        return {"A2": Check(True, smooth), "A3": Check(True, "T and b are networks with one tanh layer")}
    why = "the family has weights that are NaN or infinite" if known else "T and b are not one-layer tanh networks"
    return {"A2": Check(False, why), "A3": Check(False, why)}


def _constants(levels: list[_Level], weight: WeightBounds, theta: Float[np.ndarray, " d_theta"]) -> dict[str, float]:
    """The constants of A5, with w <= 1, and of the lemma that links it to A4; the largest over the levels."""

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
    """Upper bound of PIF_KL over all x and all replaced observations."""
    if not posterior.resolution:
        return _with_one_rate(posterior, levels, weight)
    S, λ, _, b = diagonalise(posterior.prior, posterior.statistics.total)
    pull = _total_pull(levels, weight, posterior.prior.mean, S.T)
    lowered_from = (posterior.resolution**-2 - 1) / (2 * posterior.beta)
    if up(float(λ[-1]) + pull.precision) < lowered_from:  # for every x, no direction reaches the limit
        return _with_one_rate(posterior, levels, weight)
    return _with_rates(posterior, pull, λ, float(np.linalg.norm(b)))


def _with_one_rate(posterior: ConjugatePosterior, levels: list[_Level], weight: WeightBounds) -> float:
    """The bound for a single learning rate.

    In coordinates of theta in which the precision P is the identity, let E_j be the contribution of observation j to P,
    E that of x, and v = w^2 (dT s + lap T) + dT grad w^2 its pull on the mean, s the score at the posterior mean. Then
    2 KL = tr(E - E_j) - log det(I - E_j + E) + 4 beta^2 (v - v_j)' (I - E_j + E)^-1 (v - v_j).
    E and E_j are nonnegative with traces of at most t = 2 beta sup w^2 |dT|^2, so the first two terms are at most
    t + sum(-log(1 - e_i) - e_i), e_i the eigenvalues of E_j. All 1 - e_i are at least 1 - t, and at least the smallest
    eigenvalue of the prior's precision in these coordinates.
    """
    k, change = 2 * posterior.beta, np.linalg.inv(np.linalg.cholesky(posterior.precision))
    pull = _total_pull(levels, weight, posterior.mean, change)
    from_prior = change @ posterior.prior.precision @ change.T
    trace = up(k * pull.precision)
    rest = max(eigenvalue_range((from_prior + from_prior.T) / 2)[0], 1 - trace)
    if not rest > 0:
        return math.inf
    return up(0.5 * (trace + up(_lost(trace, rest, posterior.dim)) + (2 * k * pull.mean) ** 2 / rest))


def _with_rates(posterior: ConjugatePosterior, pull: Pull, λ: Float[np.ndarray, " d"], b: float) -> float:
    """The bound for a learning rate in each direction (`direction_rates`).

    In coordinates in which the prior is N(0, I) the precision is I + p(A) and the mean -g(A) b, with A the quadratic
    and b the linear part of the total loss, p(l) = min(2 beta l, resolution^-2 - 1) and g(l) = k / (1 + k l), k the
    rate at l. Replacing an observation changes A by at most sqrt(2) a in the Frobenius norm (two nonnegative matrices
    of trace at most a) and b by at most 2 v. For a function with Lipschitz constant c, the value at a symmetric matrix
    changes by at most c times the change of the matrix in that norm: c = 2 beta for p, and for g the largest |g'| above
    the smallest eigenvalue.
    """
    k, limit = 2 * posterior.beta, posterior.resolution**-2
    changed = up(math.sqrt(2) * pull.precision)
    low = max(0.0, float(λ[0]) * (1 - 1e-9) - pull.precision)
    slope, level = steepest_rate(k, limit, low)
    step = up(level * 2 * pull.mean + slope * changed * b)
    smallest = 1 + min(k * float(λ[0]) * (1 - 1e-9), limit - 1)
    largest = min(limit, 1 + k * (float(λ[-1]) + pull.precision))
    relative = up(k * changed / smallest)  # |P^-1/2 (P^c - P) P^-1/2|_F
    spread = math.sqrt(posterior.dim) * relative + np.linalg.slogdet(posterior.precision)[1]
    spread -= np.linalg.slogdet(posterior.prior.precision)[1]  # no P^c is below the prior's precision
    if relative < 1:
        spread = min(spread, relative**2 / (2 * (1 - relative)))  # e - log(1 + e) <= e^2 / 2 / (1 - |e|)
    return up(0.5 * (up(spread) + largest * step**2))


def steepest_rate(k: float, limit: float, low: float) -> tuple[float, float]:
    """sup |g'| and sup g over l >= low: g = k / (1 + k l) up to its kink l = (limit - 1) / k, then (1 - 1 / limit) / l.

    g decreases, and each part is steepest at its left end: at `low`, or at the kink, beyond which g decreases faster.
    """
    if k * low > limit - 1:
        return (1 - 1 / limit) / low**2, (1 - 1 / limit) / low
    before, beyond = k**2 / (1 + k * low) ** 2, k**2 / (limit * (limit - 1))
    return max(before, beyond), k / (1 + k * low)


def _total_pull(
    levels: list[_Level],
    weight: WeightBounds,
    theta: Float[np.ndarray, " d_theta"],
    change: Float[np.ndarray, "d_theta d_theta"],
) -> Pull:
    """Bound of the pull of one observation, summed over the levels."""
    pulls = [_pull(level, weight, theta, change) for level in levels]
    return Pull(
        *(up(sum(level.quadrature_weight * p[i] for level, p in zip(levels, pulls, strict=True))) for i in (0, 1))
    )


def _pull(
    level: _Level,
    weight: WeightBounds,
    theta: Float[np.ndarray, " d_theta"],
    change: Float[np.ndarray, "d_theta d_theta"],
) -> Pull:
    """Bound of the pull of one observation at one level, the sharpest available."""
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

    The sum is convex in e, hence largest with as many eigenvalues as possible at their limit 1 - rest.
    """
    full = min(dim, math.ceil(trace / (1 - rest))) if rest < 1 else 0
    return full * (-math.log(rest) - (1 - rest))
