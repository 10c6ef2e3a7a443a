"""Results of experiments that nobody ran: every number is drawn at random, in the shapes of real ones."""

import numpy as np

from nsmbayes import tasks
from nsmbayes.experiments import ExperimentResult, Row, Store, Trace
from nsmbayes.experiments.repeat import RepeatResult

_DRAWS = 200


def a_row(**fields):
    """A row that says as little as a row can, but for what it is given."""
    return Row(**({"method": "nle", "repeat": 0, "seed": 0, "contamination": "shift", "n": 100, "mse": 1.0} | fields))


def _row(experiment, spec, data, seed, repeat, rng, d):
    fraction = data.fraction if data.fraction is not None else 0.0 if data.contamination == "none" else 0.1
    return Row(
        method=spec.label,
        repeat=repeat,
        seed=seed,
        contamination=data.contamination,
        fraction=fraction,
        distance=data.distance,
        n=data.n,
        simulations=spec.m or experiment.m,
        mse=rng.lognormal(),
        mmd2_ref=rng.uniform(0.1, 1),
        mmd2_oracle=rng.uniform(0.1, 1),
        covered=bool(rng.random() < 0.9),
        covered_80=bool(rng.random() < 0.8),
        covered_50=bool(rng.random() < 0.5),
        converged=True,
        train_s=10.0,
        infer_s=rng.lognormal(),
        compiled=repeat == 0,
        oracle_mse=0.3 + 0.01 * repeat,
        reference_mse=0.3,
        beta=1.0,
        mean=tuple(rng.normal(size=d).tolist()),
        sd=tuple(rng.uniform(0.5, 1, d).tolist()),
    )


def synthetic_result(experiment, folder, *, repeats=2, seed=100):
    """A result of `experiment` whose draws lie around the truth and whose scores say nothing. It is stored."""
    task, store = tasks.get(experiment.task), Store(folder, experiment)
    d, d_x, stored = task.prior.dim, len(task.x_names), []
    for repeat in range(repeats):
        own, rng = seed + repeat, np.random.default_rng(repeat)
        rows, traces, arrays = [], [], {}
        for number, data in enumerate(experiment.data):
            outlier = np.arange(data.n) < 0.1 * data.n
            clean = rng.normal(size=(data.n, d_x))
            observed = {"x": clean - 50 * outlier[:, None], "clean": clean, "is_outlier": outlier}
            arrays |= {f"{number}:{name}": array for name, array in observed.items()}
            for name in ("reference", "oracle", *(spec.label for spec in experiment.methods)):
                spread = task.prior.std * rng.uniform(0.2, 0.8, d)
                arrays[f"{number}:{name}"] = task.theta_true + spread * rng.normal(size=(_DRAWS, d))
            for spec in experiment.methods:
                rows.append(_row(experiment, spec, data, own, repeat, rng, d))
                if spec.method.startswith("nsm-bayes"):
                    tried = {"betas": (0.1, 0.3, 1.0), "coverages": (1.0, 0.97, 0.9)}
                    traces.append(Trace(method=spec.label, data=number, **tried))
        stored.append(store.save(RepeatResult(own, rows, traces, arrays)))
    return ExperimentResult.from_repeats(experiment, stored, store)
