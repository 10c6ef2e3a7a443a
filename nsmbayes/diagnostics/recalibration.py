"""A learning rate at which regions hold the truth of simulated data sets as often as they say.

A bootstrap sees the noise of the data, and held-out simulations the surrogate's error to first order. Data sets whose
parameters are known see all of it: surrogate, weights, sampler. Their parameters are draws of a posterior; the method
answers at the posterior's own learning rate; and the squared distance of the truth, in units of the squared radius of
the region of level p, has a p quantile. Where that exceeds 1, the region is too small by so much, and the learning rate
is divided by the largest of these numbers (for exchangeable data sets, regions that are enlarged so hold a further
truth with probability p: a conformal correction).
"""

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.precision import sheltered
from nsmbayes.calibration import CalibrationResult, CalibrationStatus
from nsmbayes.diagnostics.answers import LEVELS, can_batch
from nsmbayes.diagnostics.calibration_map import kinds_of, map_of
from nsmbayes.diagnostics.calibration_result import CalibrationMap
from nsmbayes.diagnostics.trials import simulate_trials
from nsmbayes.errors import InputError
from nsmbayes.posteriors import AmortisedPosterior, ConjugatePosterior, Posterior

_FEWEST = 40  # data sets: of fewer, the 95 % quantile is the largest of them


class Recalibration(NamedTuple):
    """A posterior at another learning rate, and why."""

    posterior: Posterior
    """At the new learning rate; the one that was given, if its regions were wide enough."""
    widening: float
    """How much larger squared radii of its regions had to be, at least 1."""
    before: CalibrationMap
    """The calibration at the posterior's own learning rate."""

    def describe(self) -> str:
        """In a sentence or two."""
        rates = ", ".join(f"{row.rate:.0%} ({row.data}, {row.level:.0%})" for row in self.before.coverage)
        said = f"On {len(self.before.theta)} data sets simulated with {self.before.source}, regions held the truth: "
        said += f"{rates}."
        if self.widening == 1:
            return said + " They are wide enough: the learning rate stays."
        return said + f" So the learning rate was divided by {self.widening:.2f}, to {self.posterior.beta:.3g}."


@sheltered
def recalibrate(
    method: Any,
    posterior: Posterior,
    simulator: Any = None,
    *,
    datasets: int = 200,
    contamination: Any = None,
    fraction: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Recalibration:
    """The posterior, with a learning rate at which its regions hold the truth of simulated data sets.

    As many observations as the posterior has are simulated at each of some draws of it. On two cores, 200 data
    sets of 100 observations take four to ten seconds with NSMBayesAmortised, one with NSMBayesConj, and minutes with
    NSMBayes, which answers them one by one.

    Args:
        method: the method that the posterior comes from.
        posterior: what it gave for the observations.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task. Without one the data sets come from the method's own
            surrogate, whose error they then cannot show.
        datasets: number of data sets, at least 40.
        contamination: as in `calibration`: the learning rate is then right for clean data sets and for contaminated.
        fraction: the fraction of outliers of a task's contamination, if not its usual one.
        seed: decides everything that is random.
        progress: whether to show a progress bar.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gaussian")
        >>> method = nsm.NSMBayesConj(task.prior, excess=None).append_simulations(*task.simulate(2_000, seed=0))
        >>> _ = method.train(settings=nsm.TrainingSettings(max_epochs=2), progress=False)
        >>> posterior = method.build_posterior(task.observe(50, seed=1).x, beta=30.0)
        >>> found = nsm.diagnostics.recalibrate(method, posterior, task, datasets=40, progress=False)
        >>> found.widening > 5, found.posterior.beta < 6
        (True, True)
    """
    checks.instance(posterior, "posterior", Posterior, "a posterior of the method")
    if not callable(getattr(method, "build_posterior", None)):
        raise InputError(f"`method` must be a trained method, e.g. nsmbayes.NSMBayes; got {type(method).__name__}.")
    if "beta" not in inspect.signature(method.build_posterior).parameters:
        raise InputError(
            f"Posteriors of {method.label} have no learning rate that could be changed. `method` must be one that has, "
            "e.g. NSMBayesAmortised."
        )
    if posterior.dim != (wanted := len(method.parameter_names)):
        raise InputError(f"`posterior` must be one of `method`, with {wanted} parameters; it has {posterior.dim}.")
    datasets, seed = checks.integer(datasets, "datasets", at_least=_FEWEST), checks.integer(seed, "seed")
    kinds = kinds_of(contamination, simulator, fraction)
    theta = posterior.sample((datasets,), seed=seed)
    trials = simulate_trials(method, simulator, datasets=datasets, n=posterior.n, seed=seed, theta=theta)
    batch = can_batch(method, posterior.beta)
    before = map_of(method, trials, kinds, beta=posterior.beta, batch=batch, seed=seed, progress=progress)
    wider = max(widening(answers.radii) for answers in before.answers.values())
    if not math.isfinite(wider):
        raise InputError("The posteriors of simulated data sets are flat: draws lie on a plane, and hold no truth.")
    beta = posterior.beta / wider
    coverages = [
        min(row.rate for row in before.coverage if row.level == LEVELS[-1]),
        min(float((answers.radii[:, -1] <= wider).mean()) for answers in before.answers.values()),
    ]
    result = CalibrationResult(
        beta,
        np.array([posterior.beta, beta]),
        np.array(coverages),
        LEVELS[-1],
        None,
        CalibrationStatus.SIMULATED,
        f"{datasets} data sets simulated with {trials.source}",
        datasets,
    )
    return Recalibration(_at(posterior, method, result, seed) if wider > 1 else posterior, wider, before)


def widening(radii: Float[np.ndarray, "k levels"]) -> float:
    """By how much squared radii have to grow, at least 1, so that regions of all levels hold a further truth.

    Example:
        >>> normal = np.random.default_rng(0).standard_normal(9999)
        >>> squares = (normal / np.array([[0.674], [1.282], [1.960]])).T ** 2
        >>> round(widening(4 * squares), 1), widening(squares / 4)
        (4.0, 1.0)
    """
    known = np.sort(radii[~np.isnan(radii).any(axis=1)], axis=0)
    ranks = [min(math.ceil((len(known) + 1) * level), len(known)) - 1 for level in LEVELS]
    return max(1.0, float(known[ranks, range(len(LEVELS))].max()))


def _at(posterior: Posterior, method: Any, result: CalibrationResult, seed: int) -> Posterior:
    """The posterior at the learning rate that was found."""
    if isinstance(posterior, AmortisedPosterior):
        return posterior.with_beta(result.beta, seed=seed, calibration=result)
    if isinstance(posterior, ConjugatePosterior):
        return posterior.with_beta(result.beta, calibration=result)
    found = method.build_posterior(posterior.x, beta=result.beta, seed=seed)
    found.calibration = result
    return found
