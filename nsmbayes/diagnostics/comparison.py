"""Comparison of simulators by leave-one-out scores: how well their posteriors predict the same observations."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from nsmbayes._internal import checks
from nsmbayes._internal.frames import data_frame
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.psis import smooth, trusted_k
from nsmbayes._internal.text import escape, shorten
from nsmbayes.errors import InputError
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.posteriors import AmortisedPosterior, ConjugatePosterior, GeneralisedPosterior, Posterior
from nsmbayes.priors import GaussianPrior, constrain_rows
from nsmbayes.surrogates import Density

_DRAWS = 1000
_MOST = 10_000  # maximum number of observations
_MOST_REFITS = 20  # maximum number of posteriors recomputed without one observation
_CLEAR = 2.0  # a difference above this number of standard errors is called clear


class Score(NamedTuple):
    """Leave-one-out score of a posterior: how well it predicts each observation from the others."""

    name: str
    each: Float[np.ndarray, " n"]
    """log of the average of q(x_i | theta) over the posterior without observation i."""
    k: Float[np.ndarray, " n"]
    """Pareto k of the importance weights for leaving out observation i."""
    unreliable: Int[np.ndarray, " j"]
    """Observations with unreliable importance weights, for which the posterior was not recomputed."""
    refitted: int
    """Number of observations for which the posterior was recomputed."""
    total: float
    """Weighted sum of `each`."""
    behind: float
    """Difference to the best total."""
    error: float
    """Standard error of `behind`; 0 for the best."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Leave-one-out scores of several simulators; built by `nsmbayes.diagnostics.compare`."""

    scores: tuple[Score, ...]
    """Scores in descending order, the best first."""
    counts: Float[np.ndarray, " n"]
    """Squared weight of each observation in the sums."""

    def table(self) -> str:
        """Table with one line per simulator, the best first."""
        wide = max(10, *(len(shorten(each.name)) + 2 for each in self.scores))
        lines = [f"{'simulator':<{wide}}{'score':>10}{'behind':>9}{'se':>7}{'worst k':>9}{'unreliable':>12}"]
        for each in self.scores:
            numbers = f"{each.total:>10.1f}{each.behind:>9.1f}{each.error:>7.1f}{each.k.max():>9.2f}"
            lines.append(f"{shorten(each.name):<{wide}}{numbers}{len(each.unreliable):>12}")
        return "\n".join(lines)

    def to_pandas(self) -> Any:
        """DataFrame with one row per simulator; needs pandas."""
        names = ("name", "total", "behind", "error", "refitted")
        rows = [
            {name: getattr(each, name) for name in names}
            | {"worst_k": float(each.k.max()), "unreliable": len(each.unreliable)}
            for each in self.scores
        ]
        return data_frame(rows)

    def explain(self) -> str:
        """Describe in plain sentences which simulator predicts best, and how certain this is."""
        best, *others = self.scores
        parts = [
            f"{shorten(best.name)} predicts best: {best.total:.1f} nats over observations that count as "
            f"{self.counts.sum():.1f} of {len(self.counts):,}."
        ]
        for each in others:
            clear = each.behind > _CLEAR * each.error
            verdict = "clearly worse" if clear else "too close to tell"
            parts.append(f"{shorten(each.name)} is {each.behind:.1f} behind (se {each.error:.1f}): {verdict}.")
        for each in self.scores:
            if len(each.unreliable):
                rows = checks.shown(each.unreliable)
                parts.append(
                    f"{shorten(each.name)}: observations {rows} weigh so much that draws cannot tell what the "
                    f"posterior would be without them (Pareto k up to {each.k[each.unreliable].max():.2f}): its score "
                    "may be too high. Build the posterior without them to know."
                )
        parts.append(
            "Scores include the errors of the surrogates; weights, scatter and learning rates are those of all "
            "observations; a simulator that predicts best may still be wrong."
        )
        return "\n".join(textwrap.fill(escape(part), 110) for part in parts)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(f'{each.name}: {each.total:.1f}' for each in self.scores)})"


@double_precision
def compare(
    posteriors: Mapping[str, Posterior],
    *,
    densities: Mapping[str, Any] | None = None,
    weights: Any = None,
    refit: bool = True,
    seed: int = 0,
) -> Comparison:
    """Compare simulators: how well do their posteriors predict each observation from the others?

    The score is sum_i w_i^2 log E q(x_i | theta), with the expectation over the posterior without observation i. It is
    computed by reweighting the draws by exp(beta loss_i), with Pareto smoothing (PSIS).

    Args:
        posteriors: a posterior for each simulator by name, all of the same observations, from NLE, NSM-Bayes,
            NSM-Bayes-amortised, or NSM-Bayes-conj.
        densities: for posteriors without a normalised surrogate (NSM-Bayes-conj), by name: a trained NLE of the same
            simulator, or its density.
        weights: the weight w_i of each observation; by default the largest weight in any of the posteriors, so that
            observations that no simulator explains have little effect, and those that at least one explains count.
        refit: whether to recompute the posterior without an observation whose importance weights are unreliable, if
            the method supports it (NSM-Bayes-conj, NSM-Bayes-amortised); for at most 20 observations.
        seed: for draws.

    Example:
        >>> import nsmbayes as nsm
        >>> task, brief = nsm.tasks.get("gaussian"), nsm.TrainingSettings(max_epochs=2)
        >>> theta, x = task.simulate(2_000, seed=0)
        >>> observed = task.observe(20, seed=1, contamination="none").x
        >>> posteriors = {}
        >>> for name, factor in (("one", 1.0), ("three", 3.0)):  # the second makes observations three times as large
        ...     method = nsm.NLE(task.prior).append_simulations(theta, factor * x)
        ...     posteriors[name] = method.train(settings=brief, progress=False).build_posterior(observed)
        >>> len(nsm.diagnostics.compare(posteriors).scores)
        2
    """
    seed, refit = checks.integer(seed, "seed"), checks.flag(refit, "refit")
    if not isinstance(posteriors, Mapping) or len(posteriors) < 2:
        raise InputError('`posteriors` must be a dictionary of at least two posteriors, e.g. {"one": a, "two": b}.')
    for posterior in posteriors.values():
        checks.instance(posterior, "posteriors", Posterior, "a dictionary of posteriors")
    x = next(iter(posteriors.values())).x
    for name, posterior in posteriors.items():
        if posterior.x.shape != x.shape or not np.array_equal(posterior.x, x):
            raise InputError(f"`posteriors` must be of the same observations in the same order; {name!r:.60} is not.")
    if len(x) > _MOST:
        raise InputError(f"`posteriors` must be of at most {_MOST:,} observations; got {len(x):,}. Take some of them.")
    if weights is None:
        weights = np.max([posterior.weights for posterior in posteriors.values()], axis=0)
    counts = checks.vector(weights, "weights", length=len(x)) ** 2
    found = {
        name: _leave_each_out(posterior, _density(name, posterior, densities or {}), refit, seed)
        for name, posterior in posteriors.items()
    }
    totals = {name: float(counts @ each) for name, (each, *_) in found.items()}
    best = max(totals, key=totals.__getitem__)
    scores = []
    for name, (each, k, unreliable, refitted) in found.items():
        difference = counts * (found[best][0] - each)
        error = float(np.sqrt(len(x)) * difference.std(ddof=1)) if len(x) > 1 else np.nan
        behind = totals[best] - totals[name]
        scores.append(Score(name, each, k, unreliable, refitted, totals[name], behind, error))
    return Comparison(tuple(sorted(scores, key=lambda score: score.behind)), counts)


def _density(name: str, posterior: Posterior, densities: Mapping[str, Any]) -> Density:
    given = densities.get(name)
    given = getattr(given, "density", given)
    if given is None and isinstance(posterior, GeneralisedPosterior):
        given = getattr(posterior.setting, "surrogate", None)
    if not isinstance(given, Density):
        raise InputError(
            f"`posteriors`: {name!r:.60} ({posterior.label}) has no normalised density of observations. Pass "
            f"densities={{{name!r:.60}: nle}}, with an NLE trained on the same simulations."
        )
    return given


_Left = tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Int[np.ndarray, " j"], int]


def _leave_each_out(posterior: Posterior, density: Density, refit: bool, seed: int) -> _Left:
    """Scores of all observations, Pareto k, unreliable observations, and the number of recomputed posteriors."""
    again: Callable[[int], Float[np.ndarray, "draws d"]] | None = None  # returns draws without an observation
    if isinstance(posterior, ConjugatePosterior):
        x, theta = posterior.statistics.dequantised, posterior.sample((_DRAWS,), seed=seed)
        means, precisions = _without_each(posterior)
        ratios = np.stack([_gaussian_ratio(posterior, *one, theta) for one in zip(means, precisions, strict=True)], 1)
        again = lambda i: GaussianPrior(means[i], np.linalg.inv(precisions[i])).sample((_DRAWS,), seed)  # noqa: E731
    elif isinstance(posterior, GeneralisedPosterior):
        x, positions = posterior.dequantised, posterior.thinned(_DRAWS)
        theta = constrain_rows(posterior.target.prior, positions)
        ratios = posterior.beta * posterior.row_losses(positions, np.arange(posterior.n))
        if isinstance(posterior, AmortisedPosterior):
            again = lambda i: posterior.remove([i], seed=seed).sample((_DRAWS,), seed=seed)  # noqa: E731
    else:
        raise InputError(
            f"`posteriors`: {posterior.label} has no loss that is a sum over observations, so that leaving one out "
            "means running it again. Compare posteriors of NLE, NSM-Bayes or NSM-Bayes-conj."
        )
    log_weights, k = smooth(ratios)
    each = np.asarray(logsumexp(log_weights + log_densities(density, theta, x), axis=0))
    high = np.flatnonzero(k > trusted_k(len(theta)))
    high = high[np.argsort(-k[high], kind="stable")]
    done = 0
    if refit and again is not None:
        for i in high[:_MOST_REFITS]:
            logs = log_densities(density, again(int(i)), x[i : i + 1])[:, 0]
            each[i] = logsumexp(logs) - np.log(len(logs))
            done += 1
    return each, k, np.sort(high[done:]), done


def _without_each(posterior: ConjugatePosterior) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d d"]]:
    """Means and precisions of the posteriors without each observation."""
    total, parts = posterior.statistics.total, []
    for loss in posterior.statistics.each():
        left = Quadratic(total.A - loss.A, total.B - loss.B, total.C - loss.C)
        parts.append(gaussian_posterior(posterior.prior, left, posterior.beta, posterior.resolution))
    means, precisions = zip(*parts, strict=True)
    return np.concatenate(means), np.concatenate(precisions)


def _gaussian_ratio(
    posterior: ConjugatePosterior, mean: Float[np.ndarray, " d"], precision: Float[np.ndarray, "d d"], theta: np.ndarray
) -> Float[np.ndarray, " draws"]:
    """Log density of N(mean, precision^-1) minus that of the posterior, up to a constant."""
    step = theta - mean
    return -0.5 * np.einsum("si,ij,sj->s", step, precision, step) - posterior.log_prob(theta)


@double_precision
def log_densities(
    density: Density, theta: Float[np.ndarray, "draws d"], x: Float[np.ndarray, "n d_x"]
) -> Float[np.ndarray, "draws n"]:
    """log q(x_i | theta_s) of all draws and observations."""
    return map_rows(_log_probs, theta, density, jnp.asarray(x))


def _log_probs(theta: Float[Array, " d"], density: Density, x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
    return density.log_probs(theta, x)
