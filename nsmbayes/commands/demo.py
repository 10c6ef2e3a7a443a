"""Train on the g-and-k task, infer from contaminated data, and write a report."""

import argparse
import time
from pathlib import Path

from nsmbayes import tasks
from nsmbayes.methods import NSMBayesConj
from nsmbayes.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--task", default="gnk", help="which built-in task (default: gnk)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the report (default: demo)")
    parser.add_argument("--simulations", type=int, default=100_000)
    parser.add_argument("--observations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    task = tasks.get(options.task)
    observed = task.observe(options.observations, seed=options.seed)
    method = NSMBayesConj(task.prior, parameter_names=task.parameter_names)
    start = time.perf_counter()
    theta, x = task.simulate(options.simulations, seed=options.seed)
    simulated = time.perf_counter()
    print(f"{len(theta):,} simulations of {task.name} in {simulated - start:.1f} s")
    method.append_simulations(theta, x).train(seed=options.seed, progress=not options.quiet)
    trained = time.perf_counter()
    posterior = method.build_posterior(observed.x, seed=options.seed)
    inferred = time.perf_counter()
    clean = method.build_posterior(observed.clean, seed=options.seed)
    method.save(options.out / "model", overwrite=True)
    assert method.history is not None
    facts = {
        "simulations": f"{len(theta):,}",
        "outliers planted": f"{observed.is_outlier.sum()} of {len(observed.x)}",
        "training": f"{trained - simulated:.1f} s, {len(method.history.train_loss)} epochs; {method.history.stopped}",
        "calibration and posterior, compilation included": f"{inferred - trained:.2f} s",
        "MSE, contaminated data": f"{posterior.mse(task.theta_true):.2f}",
        "MSE, data before contamination": f"{clean.mse(task.theta_true):.2f}",
        "truth inside the 95 % region": "yes" if posterior.contains(task.theta_true) else "no",
    }
    page = write_report(
        posterior,
        options.out,
        title=f"NSM-Bayes-conj on contaminated {task.name} data",
        truth=task.theta_true,
        is_outlier=observed.is_outlier,
        comparisons={"posterior had the data been clean": clean},
        facts=facts,
    )
    print(f"\n{posterior.summary()}\n")
    width = max(map(len, facts))
    print("\n".join(f"{key:<{width}}  {value}" for key, value in facts.items()))
    print(f"\nReport: {page}\nModel:  {options.out / 'model'}  (nsmbayes infer {options.out / 'model'} data.csv)")
    return 0
