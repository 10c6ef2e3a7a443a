"""Positions of the true parameters in posteriors: statistics that are uniform on [0, 1] if the posteriors are exact.

- Ranks, one for each parameter: the fraction of the draws below the truth (Talts et al., 2018).
- The level of the smallest central region that contains the truth: the region of `covers` and of the experiments.
- TARP: the fraction of the draws that are closer to a reference point than the truth is (Lemos et al., 2023).

A fraction of L draws has L + 1 possible values; a uniform random number within its step makes it exactly uniform.
"""

import inspect
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats
from tqdm.auto import tqdm

from nsmbayes._internal.waiting import quiet
from nsmbayes.calibration import region_level, relative_radii
from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.posteriors import ConjugateBatch, ConjugatePosterior, Posterior, SampledPosterior
from nsmbayes.samplers import MAX_R_HAT, MIN_ESS, diagnose

LEVELS = (0.5, 0.8, 0.95)
_DRAWS = 1000  # number of draws from posteriors in closed form
_FEWEST = 20  # minimum number of draws after thinning a chain
_BATCH = 128  # data sets in one call of `build_posteriors`; progress is shown after each call
_CHAIN = 150  # draws of each chain in such a call
_RIDGE = 1e-3  # relative to the number of data sets


class Answers(NamedTuple):
    """Statistics that are uniform for exact posteriors; one row per data set, NaN if there is no posterior."""

    ranks: Float[np.ndarray, "k d"]
    levels: Float[np.ndarray, " k"]
    tarp: Float[np.ndarray, " k"]
    converged: Float[np.ndarray, " k"]
    """1 if the posterior has converged, else 0."""
    radii: Float[np.ndarray, "k levels"]
    """The squared distance of the truth, in units of the squared radius of the regions of levels 0.5, 0.8 and 0.95."""
    problems: tuple[str, ...]
    """Errors and warnings, one sentence for each data set concerned."""

    @classmethod
    def empty(cls, k: int, d: int) -> "Answers":
        """Build an object without any results yet."""
        nothing = np.full(k, np.nan)
        radii = np.full((k, len(LEVELS)), np.nan)
        return cls(np.full((k, d), np.nan), nothing, nothing.copy(), nothing.copy(), radii, ())


def can_batch(method: Any, beta: float | None) -> bool:
    """Whether the method can build many posteriors together, at this learning rate."""
    build = getattr(method, "build_posteriors", None)
    if build is None:
        return False
    rate = inspect.signature(build).parameters.get("beta")  # None for methods that build one posterior after the other
    return rate is not None and (beta is not None or rate.default is not inspect.Parameter.empty)


def ask(
    method: Any,
    theta: Float[np.ndarray, "k d"],
    x: Float[np.ndarray, "k n d_x"],
    *,
    beta: float | None,
    batch: bool,
    seed: int,
    title: str,
    progress: bool,
) -> Answers:
    """Build posteriors for data sets with known parameters, and compute the statistics."""
    found, problems = Answers.empty(*theta.shape), []
    references, scales = reference_points(theta, x)
    rng = np.random.default_rng([seed, len(theta)])
    within = rng.random((len(theta), theta.shape[1] + 1))
    options: dict[str, Any] = {} if beta is None else {"beta": beta}
    with tqdm(total=len(x), desc=title, unit="data sets", disable=not progress, mininterval=0.5) as bar:
        for i, posterior in _posteriors(method, x, options, batch, seed, problems):
            if posterior is not None:
                draws, level, found.radii[i] = _draws_and_level(posterior, theta[i], seed + i)
                closer = _closer(draws, theta[i], references[i], scales[i])
                below = (draws < theta[i]).sum(axis=0)
                position = (np.append(below, closer) + within[i]) / (len(draws) + 1)
                exact = _gaussian_ranks(posterior, theta[i])
                found.ranks[i] = position[:-1] if exact is None else exact
                found.levels[i], found.tarp[i], found.converged[i] = level, position[-1], posterior.converged
            bar.update()
    return found._replace(problems=tuple(problems))


class _Gaussian(NamedTuple):
    """One Gaussian posterior of a batch."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    converged: bool = True


class _Drawn(NamedTuple):
    """One sampled posterior of a batch."""

    draws: Float[np.ndarray, "chains draws d"]
    ess: float
    converged: bool

    @classmethod
    def of(cls, draws: Float[np.ndarray, "k chains draws d"]) -> list["_Drawn"]:
        """Split a batch; the chains of all posteriors are diagnosed together, as if they had k d coordinates."""
        k, chains, length, d = draws.shape
        found = diagnose(draws.transpose(1, 2, 0, 3).reshape(chains, length, k * d))
        ess = np.nan_to_num(found.ess_bulk).reshape(k, d).min(axis=1)
        by_chance = 1 + 2 * chains / np.maximum(ess, 1.0)  # about the 99 % quantile of R-hat for so few draws
        r_hat = found.r_hat.reshape(k, d).max(axis=1)
        converged = (r_hat <= np.maximum(MAX_R_HAT, by_chance)) & (ess >= MIN_ESS)
        return [cls(*each) for each in zip(draws, ess.tolist(), converged.tolist(), strict=True)]


def _posteriors(
    method: Any, x: Float[np.ndarray, "k n d_x"], options: dict[str, Any], batch: bool, seed: int, problems: list[str]
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each data set with its posterior, or None if there is none."""
    if batch:
        known = inspect.signature(method.build_posteriors).parameters
        fast = {"progress": False, "draws": _CHAIN, "excess": False}
        silent = {name: value for name, value in fast.items() if name in known}
        for start in range(0, len(x), _BATCH):
            some = x[start : start + _BATCH]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = method.build_posteriors(some, seed=seed + start, **options, **silent)
            problems.extend(str(each.message) for each in caught)
            if isinstance(found, ConjugateBatch):
                each = [_Gaussian(*moments) for moments in zip(found.mean, found.covariance, strict=True)]
            else:
                each = _Drawn.of(np.stack(found.draws))
            yield from enumerate(each, start)
        return
    for i, each in enumerate(x):
        posterior = None
        with quiet(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                posterior = method.build_posterior(each, seed=seed + i, **options)
            except (InputError, ConvergenceError) as error:
                problems.append(str(error))
        problems.extend(str(one.message) for one in caught[:1])
        yield i, posterior


def _draws_and_level(
    posterior: Posterior | _Gaussian | _Drawn, theta: Float[np.ndarray, " d"], seed: int
) -> tuple[Float[np.ndarray, "m d"], float, Float[np.ndarray, " levels"]]:
    """Nearly independent draws, the level of the smallest central region that contains theta, and `Answers.radii`."""
    if isinstance(posterior, _Gaussian | ConjugatePosterior):
        mean, covariance = posterior.mean, posterior.covariance
        root = np.linalg.cholesky(covariance)
        draws = mean + np.random.default_rng([seed, 1]).standard_normal((_DRAWS, len(mean))) @ root.T
        square = (np.linalg.solve(root, theta - mean) ** 2).sum()
        return draws, float(stats.chi2.cdf(square, len(mean))), square / stats.chi2.ppf(LEVELS, len(mean))
    chains = posterior.draws if isinstance(posterior, _Drawn) else posterior.chains(_DRAWS, 1, seed)
    draws, ess = chains.reshape(-1, len(theta)), np.inf
    level, radii = region_level(draws, theta), relative_radii(draws, theta, LEVELS)
    if isinstance(posterior, _Drawn):
        ess = posterior.ess
    elif isinstance(posterior, SampledPosterior) and posterior.result is not None:
        ess = np.nan_to_num(posterior.result.ess_bulk.min())
    kept = int(np.clip(ess, _FEWEST, len(draws)))
    return draws[:: -(-len(draws) // kept)], level, radii


def _gaussian_ranks(posterior: Any, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"] | None:
    """Ranks among infinitely many draws if the posterior is Gaussian, otherwise None."""
    if not isinstance(posterior, _Gaussian | ConjugatePosterior):
        return None
    return stats.norm.cdf(theta, posterior.mean, np.sqrt(np.diag(posterior.covariance)))


def _closer(draws: np.ndarray, theta: np.ndarray, reference: np.ndarray, scale: np.ndarray) -> int:
    distances, distance = ((((each - reference) / scale) ** 2).sum(axis=-1) for each in (draws, theta))
    return int((distances < distance).sum())


def reference_points(
    theta: Float[np.ndarray, "k d"], x: Float[np.ndarray, "k n d_x"]
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d"]]:
    """A reference point for each data set, and the units of distances to it.

    Any point is valid that does not depend on the true parameters of the data set. Here it is a guess of them from the
    quartiles of each column, by a linear regression on the other half of the data sets. TARP can then also detect
    posteriors that ignore the data, which ranks cannot.
    """
    quartiles = np.quantile(x, (0.25, 0.5, 0.75), axis=1).transpose(1, 0, 2).reshape(len(x), -1)
    centre, spread = np.median(quartiles, axis=0), stats.median_abs_deviation(quartiles, axis=0)
    features = np.arcsinh((quartiles - centre) / np.where(spread > 0, spread, 1.0))
    half = np.arange(len(x)) % 2 == 0
    references, scales = np.empty_like(theta), np.empty_like(theta)
    for own, other in ((half, ~half), (~half, half)):
        mean, middle = theta[other].mean(axis=0), features[other].mean(axis=0)
        F = features[other] - middle
        slope = np.linalg.solve(F.T @ F + _RIDGE * len(F) * np.eye(F.shape[1]), F.T @ (theta[other] - mean))
        references[own] = mean + (features[own] - middle) @ slope
        std = theta[other].std(axis=0)
        scales[own] = np.where(std > 0, std, 1.0)
    return references, scales
