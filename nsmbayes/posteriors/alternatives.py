"""Alternative choices for a posterior: prior, learning rate, weight, noise levels."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import ConvergenceError
from nsmbayes.losses import Loss, NSMSetting
from nsmbayes.losses.corrected import corrected_alike
from nsmbayes.losses.statistics import DataStatistics
from nsmbayes.posteriors.sensitivity import LEARNING_RATE, Alternative, Moments
from nsmbayes.priors import GaussianPrior, UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import AdaptiveSampler, Target, has_converged, total_loss
from nsmbayes.weights import Weight, Weighting

FACTORS = (0.5, 2.0)
"""Powers of the prior, and factors of the learning rate."""
_RADII = (0.8, 1.25)
_OF_WEIGHTS = {"zeta": FACTORS, "radius": _RADII, "cutoff_radius": _RADII, "lengthscale": _RADII}
COMPRESSED = "Weight and noise levels are not varied: observations are represented by a subset, or counted in cells."
_MOST = 2000  # maximum number of observations for a new evaluation of the loss at the draws
_NEAR = 200  # draws that a sampler starts from


def other_weights(weight: Weight) -> Iterator[tuple[str, str, Weight]]:
    """Yield weights with one constant changed: name of the constant, change, and weight."""
    for name, factors in _OF_WEIGHTS.items():
        value = getattr(weight, name, None)
        if value is not None:
            for factor in factors:
                yield f"weight: {name}", f"x {factor:g}", dataclasses.replace(weight, **{name: factor * value})


def other_levels(levels: tuple[float, ...]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the noise levels without the lowest, and without the highest; the network was trained for all of them."""
    if len(levels) > 2:
        yield f"without {levels[0]:g}", levels[1:]
        yield f"without {levels[-1]:g}", levels[:-1]


# --- in closed form ---


def of_conjugate(posterior: Any, replaced: Callable[..., Any]) -> Iterator[Alternative]:
    """Alternatives of a Gaussian posterior, each recomputed with `replaced`, which returns a changed posterior."""
    prior, statistics = posterior.prior, posterior.statistics

    def moments(**changed: Any) -> Callable[[], Moments]:
        def found() -> Moments:
            other = replaced(**changed)
            return other.mean, other.std

        return found

    def with_recipe(**changed: Any) -> Callable[[], Moments]:
        def found() -> Moments:
            recipe, multiples = dataclasses.replace(statistics.recipe, **changed), np.concatenate(statistics.multiples)
            other = DataStatistics.of(recipe, statistics.x, statistics.loss.centre, multiples)
            return moments(statistics=other)()

        return found

    for power in FACTORS:
        other = GaussianPrior(prior.mean, prior.covariance / power)
        yield Alternative("prior", f"^ {power:g}", moments=moments(prior=other))
    for factor in FACTORS:
        yield Alternative(LEARNING_RATE, f"x {factor:g}", moments=moments(beta=factor * posterior.beta))
    for name, change, weight in other_weights(statistics.recipe.weight):
        yield Alternative(name, change, moments=with_recipe(weight=weight))
    for change, levels in other_levels(statistics.recipe.noise_levels):
        yield Alternative("noise levels", change, moments=with_recipe(noise_levels=levels))


# --- by draws ---


def of_draws(prior: UnconstrainedPrior, theta: Float[np.ndarray, "draws d"]) -> Iterator[Alternative]:
    """Alternatives of a posterior that is only known by draws: other priors; the others are marked as unavailable."""
    for power in FACTORS:
        yield Alternative("prior", f"^ {power:g}", lambda power=power: (power - 1) * log_priors(prior, theta))
    why = "Only the prior can be varied: this posterior has no loss that could be evaluated at its draws."
    yield Alternative(LEARNING_RATE, "", why_not=why)


class Powered(Loss):
    """A loss such that exp(-beta loss) prior is the posterior for a power of the prior."""

    loss: Loss
    prior: UnconstrainedPrior
    share: Float[Array, ""]
    """(power - 1) / beta"""

    def each(self, theta: Float[Array, " d"]) -> Float[Array, " n"]:
        """The loss of each observation, without the term of the prior."""
        return self.loss.each(theta)

    def __call__(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """The sum of the losses, minus the contribution of the additional power of the prior."""
        return self.loss(theta) - self.share * self.prior.distribution.log_prob(theta)


def of_target(
    target: Target,
    positions: Float[np.ndarray, "draws d"],
    seed: int,
    setting: Any,
    x: Float[np.ndarray, "n d_x"],
    multiples: Float[np.ndarray, " n"] | None,
    *,
    why_not: str = "",
) -> Iterator[Alternative]:
    """Alternatives of a posterior with a loss; with a reason `why_not`, none of weight and noise levels."""
    theta, beta = constrain_rows(target.prior, positions), float(target.beta)

    def sampled(other: Callable[[], Target]) -> Callable[[], Moments]:
        return lambda: _moments(other(), positions, seed)

    for power in FACTORS:
        yield Alternative(
            "prior",
            f"^ {power:g}",
            lambda power=power: (power - 1) * log_priors(target.prior, theta),
            sampled(lambda power=power: _powered(target, power)),
        )
    for factor in FACTORS:
        yield Alternative(
            LEARNING_RATE,
            f"x {factor:g}",
            lambda factor=factor: -(factor - 1) * beta * totals(target, positions),
            sampled(lambda factor=factor: _at_rate(target, factor * beta)),
        )
    if not isinstance(setting, NSMSetting):
        return
    others = [
        (*named, setting._replace(weighting=Weighting(weight, setting.weighting.centre)))
        for *named, weight in other_weights(setting.weighting.weight)
    ]
    others += [
        ("noise levels", change, setting._replace(noise_levels=levels))
        for change, levels in other_levels(setting.noise_levels)
    ]
    if not why_not and len(x) > _MOST:
        why_not = f"Weight and noise levels are varied for at most {_MOST:,} observations: build the posterior again."
    now = None
    for choice, change, other in others:
        if why_not:
            yield Alternative(choice, change, why_not=why_not)
            continue
        if now is None:
            now = totals(_replaced(target, setting, x, multiples), positions)
        changed = _replaced(target, other, x, multiples)
        yield Alternative(
            choice,
            change,
            lambda changed=changed, now=now: -beta * (totals(changed, positions) - now),
            sampled(lambda changed=changed: changed),
        )


def _replaced(target: Target, setting: NSMSetting, x: np.ndarray, multiples: np.ndarray | None) -> Target:
    """Return `target` with the loss of another setting, with the same correction."""
    loss = setting.loss(x)
    loss = loss if multiples is None else loss.reweighted(multiples)
    return target._replace(loss=corrected_alike(loss, target.loss))


@double_precision
def log_priors(prior: UnconstrainedPrior, theta: Float[np.ndarray, "draws d"]) -> Float[np.ndarray, " draws"]:
    """Log density of the prior at each theta."""
    return np.asarray(prior.distribution.log_prob(jnp.asarray(theta)))


@double_precision
def totals(target: Target, positions: Float[np.ndarray, "draws d"]) -> Float[np.ndarray, " draws"]:
    """Total loss of all observations at each unconstrained position."""
    return map_rows(total_loss, positions, target)


@double_precision
def _powered(target: Target, power: float) -> Target:
    share = jnp.asarray((power - 1) / float(target.beta))
    return target._replace(loss=Powered(target.loss, target.prior, share))


@double_precision
def _at_rate(target: Target, beta: float) -> Target:
    return target._replace(beta=jnp.asarray(beta))


@double_precision
def _moments(target: Target, near: np.ndarray, seed: int) -> Moments:
    """Mean and standard deviations of another target, sampled from starts at the draws of a similar one."""
    result = AdaptiveSampler().sample_near(target, near[:: max(1, len(near) // _NEAR)], seed=seed)
    if not has_converged(result):
        raise ConvergenceError("The chains disagree or are too short.")
    theta = constrain_rows(target.prior, result.flat)
    return theta.mean(axis=0), theta.std(axis=0)
