"""From a target to draws: choice of the sampler, starts of its chains, and alternatives if it does not converge."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.errors import ConvergenceError
from nsmbayes.samplers.chains import Draws, require_converged, require_movement
from nsmbayes.samplers.independence import FEW, JUDGED, adapt, evaluation, resample, sample_independence
from nsmbayes.samplers.modes import descend
from nsmbayes.samplers.nuts import sample_nuts
from nsmbayes.samplers.slice import sample_slice
from nsmbayes.samplers.students import Population, StudentMixture, around
from nsmbayes.samplers.target import Target, log_prior, log_prob, require_finite, total_loss
from nsmbayes.serialisation import registered

_CANDIDATES, _FEW_CANDIDATES = 250, 125  # prior draws from which each chain chooses its start; the second with up to
_FEWEST = 3  # this many parameters
Near = Population | Float[np.ndarray, "k d"]
"""Possible starts of a sampler: a population visited at another learning rate, or draws of a similar target."""
_ROUGH, _ROUGH_STARTS = 300, 4  # draws per stage for rough draws, and starts of their search for modes
_ATTEMPTS = 2  # attempts of the adaptive sampler before NUTS is used


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """Base class of samplers, which draw from a target.

    Args:
        chains: number of chains.
        warmup: tuning steps of each chain, which are not kept.
        draws: draws kept from each chain.
    """

    kind: ClassVar[str]

    chains: int = 4
    warmup: int = 300
    draws: int = 500

    def __post_init__(self):
        checks.integer(self.chains, "chains", at_least=2)
        checks.integer(self.warmup, "warmup", at_least=10)
        checks.integer(self.draws, "draws", at_least=10)

    @abstractmethod
    def sample(self, target: Target, *, seed: int) -> Draws:
        """Draws of the unconstrained parameters; the same for the same seed."""

    def sample_near(self, target: Target, near: Near, *, seed: int) -> Draws:
        """Draws of a target of which `near` gives approximate draws; samplers that can start from them do so."""
        del near
        return self.sample(target, seed=seed)

    @double_precision
    def _prior_draws(self, target: Target, seed: int, *, known: bool = False) -> tuple[Float[np.ndarray, "k d"], Any]:
        """Candidates for the starts of the chains, fewer if `known`, and a random key for the sampler."""
        key_start, key = jax.random.split(seed_key(seed))
        return np.asarray(target.prior.sample(key_start, self._candidates(target, known=known))), key

    def _candidates(self, target: Target, *, known: bool) -> int:
        each = _FEW_CANDIDATES if target.prior.dim <= (FEW if known else _FEWEST) else _CANDIDATES
        return self.chains * each


@registered
@dataclass(frozen=True, kw_only=True)
class NUTSSampler(Sampler):
    """The no-U-turn sampler, started near the modes found from the best of many prior draws."""

    kind = "nuts"

    def sample(self, target: Target, *, seed: int) -> Draws:
        """Draws of the unconstrained parameters; the same for the same seed."""
        candidates, key = self._prior_draws(target, seed)
        best = starting_points(target, candidates, self.chains)
        start = around_modes(target, best, np.random.default_rng(seed))
        result = sample_nuts(
            log_prob, start.positions, target, scales=start.factors, warmup=self.warmup, draws=self.draws, key=key
        )
        return require_movement(result)


@registered
@dataclass(frozen=True, kw_only=True)
class SliceSampler(Sampler):
    """Hit-and-run slice sampling, the sampler of the paper, started at the best of many prior draws."""

    kind = "slice"

    def sample(self, target: Target, *, seed: int) -> Draws:
        """Draws of the unconstrained parameters; the same for the same seed."""
        candidates, key = self._prior_draws(target, seed)
        best = starting_points(target, candidates, self.chains)
        return require_movement(sample_slice(log_prob, best, target, warmup=self.warmup, draws=self.draws, key=key))


@registered
@dataclass(frozen=True, kw_only=True)
class AdaptiveSampler(Sampler):
    """An independence sampler with an adapted proposal; NUTS if it does not converge.

    With more than six parameters, adaptation starts at modes of the posterior, since the path from the prior would be
    long.
    """

    kind = "adaptive"

    def sample(self, target: Target, *, seed: int) -> Draws:
        """Draws of the unconstrained parameters; the same for the same seed."""
        return self._sample(target, None, seed)

    def sample_near(self, target: Target, near: Near, *, seed: int) -> Draws:
        """Draws of a target of which `near` gives approximate draws: a few stages adapt the proposal."""
        return self._sample(target, near, seed)

    def _sample(self, target: Target, near: Near | None, seed: int) -> Draws:
        first = before = None
        if near is None:
            candidates, key = self._prior_draws(target, seed)
        else:  # the first attempt only uses the number of candidates
            key = jax.random.split(seed_key(seed))[1]
            candidates = np.zeros((self._candidates(target, known=True), target.prior.dim))
        if isinstance(near, Population):
            before = near
        elif near is not None:
            first = around(near)
        elif candidates.shape[1] > FEW:
            first = at_modes(target, candidates, self.chains)
        for attempt in range(_ATTEMPTS):
            if attempt and near is not None:
                candidates, _ = self._prior_draws(target, seed, known=True)
            try:
                result = sample_independence(
                    log_prior,
                    total_loss,
                    candidates,
                    target,
                    beta=float(target.beta),
                    chains=self.chains,
                    draws=self.draws,
                    key=jax.random.fold_in(key, attempt),
                    first=first if attempt == 0 or near is None else None,
                    before=before if attempt == 0 else None,
                    thin=target.loss.cheap,
                )
                return require_converged(result) if self.chains * self.draws >= JUDGED else result
            except ConvergenceError:
                pass  # a chain is stuck in a tail that the mixture misses, or the mixture does not fit the posterior
        result = NUTSSampler(chains=self.chains, warmup=self.warmup, draws=self.draws).sample(target, seed=seed)
        return result._replace(note="Sampled by NUTS: the adaptive sampler did not converge.")


SAMPLERS: dict[str, type[Sampler]] = {each.kind: each for each in (AdaptiveSampler, NUTSSampler, SliceSampler)}


def as_sampler(sampler: Any, **options: int) -> Sampler:
    """`sampler` itself if it is a `Sampler`; otherwise the sampler of that name with these options."""
    if isinstance(sampler, Sampler):
        return sampler
    return SAMPLERS[checks.choice(sampler, "sampler", tuple(SAMPLERS))](**options)


@double_precision
def starting_points(target: Target, candidates: Float[np.ndarray, "k d"], chains: int) -> Float[np.ndarray, "chains d"]:
    """The best of the candidates, one from each of `chains` equal groups."""
    values = map_rows(log_prob, candidates, target).reshape(chains, -1)
    require_finite(values, "draws of the prior")
    best = np.nan_to_num(values, nan=-np.inf).argmax(axis=1)
    return candidates.reshape(chains, -1, candidates.shape[1])[np.arange(chains), best]


@double_precision
def rough_draws(target: Target, near: Float[np.ndarray, "k d"] | None, *, count: int, seed: int) -> np.ndarray:
    """Approximate draws for rough averages, at a fraction of the cost; `near` are draws of a similar target.

    They come from importance sampling: single Student distributions follow the path to the posterior.
    """
    return rough_population(target, near, count=count, seed=seed).draws


class Rough(NamedTuple):
    """Rough draws, and a start for a sampler of the same target."""

    draws: Float[np.ndarray, "count d"]
    near: Near


@double_precision
def rough_population(target: Target, near: Float[np.ndarray, "k d"] | None, *, count: int, seed: int) -> Rough:
    """`rough_draws`, with the population they were resampled from."""
    key_start, key = jax.random.split(seed_key(seed))
    size, beta = rough_stage(target.prior.dim), float(target.beta)
    if near is None:
        candidates = np.asarray(target.prior.sample(key_start, size))
        first = rough_start(target, candidates)
    else:
        candidates, first = np.zeros((size, target.prior.dim)), around(near)
    evaluate = evaluation(log_prior, total_loss, target)
    try:
        found = adapt(evaluate, candidates, beta=beta, key=key, first=first, rough=True)
        return Rough(resample(found, beta, count), found)
    except ConvergenceError:
        draws = thorough_draws(target, count=count, seed=seed)
        return Rough(draws, draws)


def rough_stage(d: int) -> int:
    """Number of draws per stage for rough draws in d dimensions."""
    return max(_ROUGH, 40 * d)


def rough_start(target: Target, candidates: Float[np.ndarray, "k d"]) -> StudentMixture | None:
    """The proposal of the first stage: with many parameters, a mixture at the modes found from some candidates."""
    return at_modes(target, candidates, _ROUGH_STARTS) if target.prior.dim > FEW else None


def thorough_draws(target: Target, *, count: int, seed: int) -> Float[np.ndarray, "count d"]:
    """Draws from chains of the adaptive sampler, with all its fallbacks, for cases where rough draws fail."""
    return AdaptiveSampler(draws=100).sample(target, seed=seed).flat[:: 400 // count][:count]


def at_modes(target: Target, candidates: Float[np.ndarray, "k d"], starts: int) -> StudentMixture | None:
    """A proposal that covers the modes found from the best candidates; None if no mode is usable."""
    modes = modes_from(target, starting_points(target, candidates, starts))
    return modes.proposal() if np.isfinite(modes.log_masses).any() else None


class Modes(NamedTuple):
    """Gaussian approximations at modes: means, factors F of their covariances F F', and logarithms of their masses."""

    means: Float[np.ndarray, "starts d"]
    factors: Float[np.ndarray, "starts d d"]
    log_masses: Float[np.ndarray, " starts"]

    def proposal(self) -> StudentMixture:
        """A mixture of Student distributions that covers the modes, with heavy tails; small modes get more weight."""
        some = self.log_masses > self.log_masses.max() - np.log(1000)
        weights = np.exp(0.5 * (self.log_masses[some] - self.log_masses.max()))
        lower = np.linalg.cholesky(self.factors[some] @ self.factors[some].transpose(0, 2, 1))
        return StudentMixture(weights / weights.sum(), self.means[some], lower)


def modes_from(target: Target, starts: Float[np.ndarray, "starts d"]) -> Modes:
    """The modes found from the starts; a mode that is not usable has no mass."""
    d = starts.shape[1]
    points, energies, hessians = descend(energy, target, starts, np.ones(d))
    usable = np.isfinite(hessians).all(axis=(1, 2)) & np.isfinite(energies)
    curvatures, axes = np.linalg.eigh(np.where(usable[:, None, None], hessians, np.eye(d)))
    scales = 1 / np.sqrt(np.clip(np.abs(curvatures), 1e-12, 1e12))
    return Modes(points, axes * scales[:, None], np.where(usable, np.log(scales).sum(axis=1) - energies, -np.inf))


class Start(NamedTuple):
    """Starting positions of chains, and for each a factor F of the approximate covariance F F' around it."""

    positions: Float[np.ndarray, "chains d"]
    factors: Float[np.ndarray, "chains d d"]


def around_modes(target: Target, starts: Float[np.ndarray, "chains d"], rng: np.random.Generator) -> Start:
    """Draws from the Gaussian approximations at the modes found from the starts.

    If by these approximations a mode has less than a thousandth of the probability of the best mode, it is dropped and
    its chain starts at the best mode. So chains still disagree if important modes differ.
    """
    chains, d = starts.shape
    points, factors, log_masses = modes_from(target, starts)
    chosen = np.where(log_masses > log_masses.max() - np.log(1000), np.arange(chains), log_masses.argmax())
    factors = factors[chosen]
    draws = points[chosen] + (factors @ rng.standard_normal((chains, d, 1)))[..., 0]
    possible = np.isfinite(map_rows(log_prob, draws, target))
    return Start(np.where(possible[:, None], draws, points[chosen]), factors)


def energy(u: Any, target: Target) -> Any:
    """Minus the log density; its minima are the modes."""
    return -log_prob(u, target)
