"""Finished experiments that nobody ran: every number is drawn at random, in the shapes of real ones."""

import numpy as np

from nsmbayes import tasks
from nsmbayes.experiments.finished import Finished
from nsmbayes.experiments.repeat import Result, Row
from nsmbayes.experiments.store import Store

_DRAWS = 200


def _row(experiment, entry, data, seed, repeat, rng, d):
    fraction = data.fraction if data.fraction is not None else 0.0 if data.contamination == "none" else 0.1
    return Row(
        method=entry.label,
        repeat=repeat,
        seed=seed,
        contamination=data.contamination,
        fraction=fraction,
        distance=data.distance,
        n=data.n,
        simulations=entry.m or experiment.m,
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
        mean=rng.normal(size=d).tolist(),
        sd=rng.uniform(0.5, 1, d).tolist(),
    )


def finished(experiment, folder, *, repeats=2):
    """A run of `experiment` whose draws lie around the truth and whose scores say nothing."""
    task, store = tasks.get(experiment.task), Store(folder, experiment)
    d, d_x, documents = task.prior.dim, len(task.x_names), []
    for repeat in range(repeats):
        seed, rng = 100 + repeat, np.random.default_rng(repeat)
        rows, found, arrays = [], [], {}
        for number, data in enumerate(experiment.data):
            outlier = np.arange(data.n) < 0.1 * data.n
            clean = rng.normal(size=(data.n, d_x))
            observed = {"x": clean - 50 * outlier[:, None], "clean": clean, "is_outlier": outlier}
            arrays |= {f"{number}:{name}": array for name, array in observed.items()}
            for name in ("reference", "oracle", *(entry.label for entry in experiment.entries)):
                spread = task.prior.stds * rng.uniform(0.2, 0.8, d)
                arrays[f"{number}:{name}"] = task.theta_true + spread * rng.normal(size=(_DRAWS, d))
            for entry in experiment.entries:
                rows.append(_row(experiment, entry, data, seed, repeat, rng, d))
                if entry.method.startswith("nsm-bayes"):
                    tried = {"betas": [0.1, 0.3, 1.0], "coverages": [1.0, 0.97, 0.9]}
                    found.append({"method": entry.label, "data": number, **tried})
        documents.append(store.save(Result(seed, rows, found, arrays)))
    rows = [row for document in documents for row in document["rows"]]
    return Finished(experiment, experiment.as_json() | {"machine": None, "rows": rows}, documents, store)
