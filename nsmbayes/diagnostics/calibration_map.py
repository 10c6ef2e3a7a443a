"""The calibration of a method, on data sets with known parameters."""

from typing import Any

import numpy as np

from nsmbayes._internal import checks
from nsmbayes._internal.precision import sheltered
from nsmbayes.diagnostics.answers import LEVELS, Answers, ask, can_batch
from nsmbayes.diagnostics.calibration_result import CalibrationMap
from nsmbayes.diagnostics.trials import Trials, as_contamination, contaminated_trials, simulate_trials
from nsmbayes.errors import InputError
from nsmbayes.posteriors import Posterior

_FEWEST, _ENOUGH = 20, 10  # minimum number of data sets, and of posteriors: fewer are not informative
_LIKELIHOODS = ("nle", "npe", "rsnle", "npe-rs")  # methods that estimate the Bayes posterior, not that of a loss


@sheltered
def calibration(
    method: Any,
    datasets: int = 200,
    n: int = 100,
    seed: int = 0,
    *,
    simulator: Any = None,
    contamination: Any = None,
    fraction: float | None = None,
    around: Posterior | None = None,
    beta: float | None = None,
    levels: tuple[float, ...] = LEVELS,
    batch: bool = True,
    progress: bool = True,
) -> CalibrationMap:
    """Check how often a method's regions contain the true parameters, and where in its posteriors these lie.

    Parameters are drawn from the prior, a data set is simulated at each of them, and the method builds its posterior.
    See docs/calibration-map.md for how to read the result.

    Args:
        method: a trained method.
        datasets: number of data sets, at least 20.
        n: number of observations per data set.
        seed: for all random numbers.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task that simulates the data sets. By default they come
            from the method's own surrogate, which must be a mixture; this cannot detect an error of the surrogate.
        contamination: how to contaminate the data sets: a function (x, rng) -> x of one data set, or if `simulator` is
            a task, one of its contaminations or its name. The map then has both clean and contaminated data.
        fraction: the fraction of outliers in a task's contamination, by default its usual one.
        around: a posterior of this method. Parameters are then drawn from it, and the new observations are added to its
            own before the method builds the posterior: calibration in the region that matters for these data
            (posterior SBC).
        beta: the learning rate; by default the method chooses one for each data set, as it does for users.
        levels: the levels of the regions in `coverage`.
        batch: whether to use the method's `build_posteriors`, if it has one that supports these options. It is faster,
            and weights observations by distance alone.
        progress: whether to show a progress bar.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gaussian")
        >>> method = nsm.NSMBayesConj(task.prior, excess=None).append_simulations(*task.simulate(2_000, seed=0))
        >>> _ = method.train(settings=nsm.TrainingSettings(max_epochs=2), progress=False)
        >>> found = nsm.diagnostics.calibration(method, datasets=20, n=30, simulator=task, beta=0.5, progress=False)
        >>> [(row.data, row.level) for row in found.coverage]
        [('clean', 0.5), ('clean', 0.8), ('clean', 0.95)]
    """
    if not callable(getattr(method, "build_posterior", None)):
        raise InputError(f"`method` must be a trained method, e.g. nsmbayes.NSMBayes; got {type(method).__name__}.")
    datasets = checks.integer(datasets, "datasets", at_least=_FEWEST)
    n, seed = checks.integer(n, "n", at_least=1), checks.integer(seed, "seed")
    beta = checks.optional_positive(beta, "beta")
    batch = checks.flag(batch, "batch") and can_batch(method, beta)
    if around is not None:
        checks.instance(around, "around", Posterior, "a posterior of the method")
        if len(around.x) != around.n:
            raise InputError("`around` must be a posterior with its observations: this one has only sums over them.")
    kinds = kinds_of(contamination, simulator, fraction)
    theta = None if around is None else around.sample((datasets,), seed=seed)
    trials = simulate_trials(method, simulator, datasets=datasets, n=n, seed=seed, theta=theta)
    wanted = tuple(checks.fraction(level, "levels") for level in levels)
    return map_of(
        method, trials, kinds, beta=beta, batch=batch, around=around, levels=wanted, seed=seed, progress=progress
    )


def kinds_of(contamination: Any, simulator: Any, fraction: float | None) -> dict[str, Any]:
    """The kinds of data sets by name: clean, and with `contamination` also contaminated, with the function for it."""
    if contamination is None:
        if fraction is not None:
            raise InputError("`fraction` is that of a `contamination`, which is not given: pass one, or leave it out.")
        return {"clean": None}
    name, contaminate = as_contamination(contamination, simulator, fraction)
    return {"clean": None, name if name != "clean" else "contaminated": contaminate}


def map_of(
    method: Any,
    trials: Trials,
    kinds: dict[str, Any],
    *,
    beta: float | None,
    batch: bool,
    around: Posterior | None = None,
    levels: tuple[float, ...] = LEVELS,
    seed: int,
    progress: bool,
) -> CalibrationMap:
    """Build the calibration map of a method from data sets with known parameters."""
    answers: dict[str, Answers] = {}
    datasets = len(trials.theta)
    for data, contaminate in kinds.items():
        x = trials.x if contaminate is None else contaminated_trials(trials, contaminate, seed).x
        if around is not None:
            x = np.concatenate([np.broadcast_to(around.x, (datasets, *around.x.shape)), x], axis=1)
        found = ask(
            method, trials.theta, x, beta=beta, batch=batch, seed=seed, title=f"posteriors, {data}", progress=progress
        )
        if (given := int((~np.isnan(found.levels)).sum())) < _ENOUGH:
            raise InputError(f"`method` gave a posterior for {given} of {datasets} data sets only. {found.problems[0]}")
        answers[data] = found
    return CalibrationMap(
        label=method.label,
        parameter_names=tuple(method.parameter_names),
        n=trials.x.shape[1],
        levels=levels,
        source=trials.source,
        how=_how(method, beta, batch, around),
        generalised=getattr(method, "name", "") not in _LIKELIHOODS,
        theta=trials.theta,
        answers=answers,
    )


def _how(method: Any, beta: float | None, batch: bool, around: Posterior | None) -> str:
    """Describe in sentences how the posteriors were built."""
    said = []
    if around is not None:
        said.append(
            f"Parameters are draws of the posterior given, and each posterior is that of its {around.n:,} observations "
            "and the new ones together."
        )
    rate = "each with the learning rate that the method chose" if beta is None else f"all with beta = {beta:g}"
    said.append(f"Posteriors were built {'many at once' if batch else 'one by one'}, {rate}.")
    if batch and getattr(method, "excess", None) is not None:
        said.append(
            "So observations were weighted by their distance alone, unlike in build_posterior; batch=False takes "
            "longer and weighs them as users have it."
        )
    return " ".join(said)
