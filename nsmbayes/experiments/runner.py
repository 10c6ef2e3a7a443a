"""Run methods on a benchmark task, repeat after repeat, and score their posteriors."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nsmbayes.diagnostics import mmd2, mse
from nsmbayes.experiments.oracle import oracle_posterior
from nsmbayes.methods import METHODS, NSMBayesConj
from nsmbayes.tasks import Task

DRAWS = 500

PRESETS: dict[str, Callable[[type[NSMBayesConj], Task], NSMBayesConj]] = {
    "default": lambda method, task: method(task.prior, parameter_names=task.parameter_names),
    "paper": lambda method, task: method.paper(task.prior, parameter_names=task.parameter_names),
}


@dataclass(frozen=True)
class Row:
    """One method on one repeat."""

    method: str
    repeat: int
    seed: int
    mse: float
    mmd2_ref: float
    covered: bool
    train_s: float
    infer_s: float
    oracle_mse: float
    beta: float

    def as_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


def run(
    task: Task, methods: tuple[str, ...], *, preset: str, repeats: int, seed: int, m: int, n: int, progress: bool
) -> Iterator[Row]:
    """Rows as they are finished. Every repeat simulates, trains and observes anew, from its own seed.

    mmd2_ref compares with the exact posterior given the data before contamination; oracle_mse is that of the exact
    posterior given the observations that were left alone.
    """
    for repeat in range(repeats):
        own = seed + repeat
        theta, x = task.simulate(m, seed=own)
        observed = task.observe(n, seed=own)
        reference = oracle_posterior(task, observed.clean, draws=DRAWS, seed=own)
        oracle = oracle_posterior(task, observed.x[~observed.is_outlier], draws=DRAWS, seed=own)
        for name in methods:
            method = PRESETS[preset](METHODS[name], task)
            start = time.perf_counter()
            method.append_simulations(theta, x).train(seed=own, progress=progress)
            trained = time.perf_counter()
            posterior = method.build_posterior(observed.x, seed=own)
            draws = posterior.sample((DRAWS,), seed=own)
            yield Row(
                method=name,
                repeat=repeat,
                seed=own,
                mse=posterior.mse(task.theta_true),
                mmd2_ref=mmd2(draws, reference),
                covered=bool(posterior.contains(task.theta_true)),
                train_s=trained - start,
                infer_s=time.perf_counter() - trained,
                oracle_mse=mse(oracle, task.theta_true),
                beta=posterior.beta,
            )


def summarise(rows: list[Row]) -> str:
    """A table of means and standard deviations by method."""
    lines = [f"{'method':<18}{'MSE':>16}{'MMD^2':>16}{'coverage':>10}{'train s':>9}{'infer s':>9}{'oracle MSE':>12}"]
    for name in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == name]

        def spread(values: list[float]) -> str:
            return f"{np.mean(values):.2f} ({np.std(values):.2f})"

        lines.append(
            f"{name:<18}{spread([r.mse for r in mine]):>16}{spread([r.mmd2_ref for r in mine]):>16}"
            f"{np.mean([r.covered for r in mine]):>10.0%}{np.mean([r.train_s for r in mine]):>9.1f}"
            f"{np.mean([r.infer_s for r in mine]):>9.2f}{np.mean([r.oracle_mse for r in mine]):>12.2f}"
        )
    return "\n".join(lines)
