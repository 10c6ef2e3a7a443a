"""One repeat of an experiment: simulate, train, observe, infer, and score every posterior."""

from typing import NamedTuple

import numpy as np

from nsmbayes.diagnostics import mmd2, mse
from nsmbayes.experiments.method_cache import Effort, MethodCache
from nsmbayes.experiments.oracle import has_oracle
from nsmbayes.experiments.rows import Row, Trace
from nsmbayes.experiments.spec import Experiment
from nsmbayes.posteriors import Posterior
from nsmbayes.training import interrupts_are_final


class RepeatResult(NamedTuple):
    """The results of one repeat."""

    seed: int
    rows: list[Row]
    traces: list[Trace]
    arrays: dict[str, np.ndarray]
    """Draws and observations, by the number of the data and a name: "0:nsm-bayes", "0:reference", "0:x", ..."""


def run_group(
    experiment: Experiment, seed: int, seeds: list[int], *, effort: Effort | None = None, progress: bool = False
) -> list[RepeatResult]:
    """Run the repeats with these seeds, which share their networks; `seed` is that of the experiment's first repeat.

    Networks have the seed of the first repeat that shares them, even if it is not in `seeds`.

    oracle_mse is that of the best posterior given the uncontaminated observations: the exact one if the task has an
    exact likelihood, otherwise that of NLE. mmd2_ref compares with the posterior given the data before contamination:
    that of the preset's NLE, or for the default preset the exact one if available.
    """
    first = seeds[0] - (seeds[0] - seed) % experiment.repeats_per_network
    with interrupts_are_final():
        cache = MethodCache(experiment, first, effort=effort, progress=progress)
        return [_run_repeat(experiment, cache, own, own - seed) for own in seeds]


def _run_repeat(experiment: Experiment, cache: MethodCache, seed: int, repeat: int) -> RepeatResult:
    task, result = cache.task, RepeatResult(seed, [], [], {})
    references: dict[int, np.ndarray] = {}
    for number, data in enumerate(experiment.data):
        observed = data.observe(task, seed)
        if data.n not in references:
            references[data.n] = cache.reference_draws(observed.clean, seed, exact=experiment.exact_reference)
        reference = references[data.n]
        if observed.is_outlier.any() or (has_oracle(task) and not experiment.exact_reference):
            oracle = cache.reference_draws(observed.x[~observed.is_outlier], seed, exact=True)
        else:
            oracle = reference
        kept = {"reference": reference, "oracle": oracle, **observed._asdict()}
        for spec in experiment.methods:
            posterior, infer_s, compiled = cache.build(spec, data, observed.x, seed)
            method, train_s = cache.trained(spec, data, observed.x)
            kept[spec.label] = draws = posterior.sample((experiment.draws,), seed=seed)
            result.rows.append(
                Row(
                    method=spec.label,
                    repeat=repeat,
                    seed=seed,
                    contamination=str(data.contamination),
                    fraction=float(observed.is_outlier.mean()),
                    distance=data.distance,
                    n=data.n,
                    simulations=method.simulations_used,
                    mse=posterior.mse(task.theta_true),
                    mmd2_ref=mmd2(draws, reference),
                    mmd2_oracle=mmd2(draws, oracle),
                    covered=bool(posterior.contains(task.theta_true)),
                    covered_80=bool(posterior.contains(task.theta_true, 0.8)),
                    covered_50=bool(posterior.contains(task.theta_true, 0.5)),
                    converged=posterior.converged,
                    train_s=train_s,
                    infer_s=infer_s,
                    compiled=compiled,
                    oracle_mse=mse(oracle, task.theta_true),
                    reference_mse=mse(reference, task.theta_true),
                    beta=posterior.beta,
                    mean=tuple(np.asarray(posterior.mean).tolist()),
                    sd=tuple(np.asarray(posterior.std).tolist()),
                )
            )
            result.traces.extend(_traces(posterior, spec.label, number))
        result.arrays.update({f"{number}:{name}": array for name, array in kept.items()})
    return result


def _traces(posterior: Posterior, label: str, number: int) -> list[Trace]:
    """The trace of the calibration, if the learning rate was calibrated."""
    calibration = posterior.calibration
    if calibration is None:
        return []
    betas, coverages = tuple(calibration.betas.tolist()), tuple(calibration.coverages.tolist())
    return [Trace(method=label, data=number, betas=betas, coverages=coverages)]
