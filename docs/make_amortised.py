"""Measure NSM-Bayes-amortised beside NSM-Bayes for docs/amortised.md: `python docs/make_amortised.py gnk sir pk radio`.

Rows are written to docs/amortised-study.json as they are finished; the table on the page is typed from them.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import nsmbayes as nsm

STORED = Path(__file__).parent / "amortised-study.json"
SETS, SEED, NETWORK = 20, 61_000, 61


def rows_of(name: str, sets: int = SETS) -> list[dict[str, Any]]:
    """Data sets of one task, all with one network."""
    task = nsm.tasks.get(name)
    theta, x = task.simulate(100_000 if name == "gnk" else 50_000, seed=NETWORK, progress=False)
    own = nsm.NSMBayesAmortised(task.prior, grid_steps=task.grid_steps).append_simulations(theta, x)
    teacher = nsm.NSMBayes(task.prior, grid_steps=task.grid_steps).adopt(own.train(seed=NETWORK, progress=False))
    rows = []
    for number in range(sets):
        observed = task.observe(100, seed=SEED + number)
        start = time.process_time()
        a = own.build_posterior(observed.x, seed=number)
        row = {
            "seed": SEED + number,
            "mse": a.mse(task.theta_true),
            "cov": bool(a.contains(task.theta_true)),
            "err": a.interpolation_error,
            "beta": a.beta,
            "cpu": time.process_time() - start,
            "ess": float(a.result.ess_bulk.min()),
        }
        start = time.process_time()
        b = teacher.build_posterior(observed.x, seed=number)
        rows.append(
            row
            | {
                "t_mse": b.mse(task.theta_true),
                "t_cov": bool(b.contains(task.theta_true)),
                "shift": float(np.sqrt((((a.mean - b.mean) / b.std) ** 2).mean())),
                "ratio": float(np.exp(np.log(a.std / b.std).mean())),
                "t_beta": b.beta,
                "t_cpu": time.process_time() - start,
            }
        )
    return rows


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # observations outside the simulations are the point here
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for task_name in sys.argv[1:]:
        stored[task_name] = rows_of(task_name)
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
