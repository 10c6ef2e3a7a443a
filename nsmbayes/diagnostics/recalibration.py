"""Recalibration: a learning rate for which regions contain the truth of simulated data sets at their nominal level.

The bootstrap measures the noise of the data, and held-out simulations the surrogate's error to first order. Data sets
with known parameters measure all errors: surrogate, weights, sampler. Their parameters are draws of a posterior, and
the method builds their posteriors at the posterior's own learning rate. Consider the squared distance of the truth, in
units of the squared radius of the region of level p, and its p quantile. If the quantile exceeds 1, the squared radius
is too small by this factor, and the learning rate is divided by the largest factor over levels. (For exchangeable data
sets, regions enlarged in this way contain the next truth with probability p: a conformal correction.)
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

_FEWEST = 40  # minimum number of data sets: with fewer, the 95 % quantile is their maximum


class Recalibration(NamedTuple):
    """A posterior at another learning rate, with the reason."""

    posterior: Posterior
    """The posterior at the new learning rate; the original posterior if its regions were large enough."""
    widening: float
    """Factor by which the squared radii of its regions had to be increased, at least 1."""
    before: CalibrationMap
    """The calibration at the original learning rate."""

    def describe(self) -> str:
        """Describe the result in one or two sentences."""
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
    """Recalibrate a posterior: lower its learning rate so that its regions contain the truth of simulated data sets.

    Data sets with as many observations as the posterior has are simulated at some of its draws. On two cores, 200 data
    sets of 100 observations take four to ten seconds with NSMBayesAmortised, one with NSMBayesConj, and minutes with
    NSMBayes, which builds the posteriors one by one.

    Args:
        method: the method that built the posterior.
        posterior: the posterior of the observations.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task. By default the data sets come from the method's own
            surrogate, and cannot show its error.
        datasets: number of data sets, at least 40.
        contamination: as in `calibration`; the learning rate is then valid for both clean and contaminated data sets.
        fraction: the fraction of outliers in a task's contamination, by default its usual one.
        seed: for all random numbers.
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
        raise InputError(
            "The posteriors of simulated data sets are flat: draws lie on a plane, and no region contains the truth."
        )
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
    """Factor, at least 1, for squared radii such that regions of all levels contain the next truth at their level.

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
    """Return the posterior at the new learning rate."""
    if isinstance(posterior, AmortisedPosterior):
        return posterior.with_beta(result.beta, seed=seed, calibration=result)
    if isinstance(posterior, ConjugatePosterior):
        return posterior.with_beta(result.beta, calibration=result)
    found = method.build_posterior(posterior.x, beta=result.beta, seed=seed)
    found.calibration = result
    return found
