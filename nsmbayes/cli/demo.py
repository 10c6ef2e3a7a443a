"""Train on the g-and-k task, infer from contaminated data, and write a report."""

import argparse
import json
import time
from typing import Any

from nsmbayes import tasks
from nsmbayes._internal.columns import Table
from nsmbayes._internal.files import write_text
from nsmbayes.methods import NLE, NSMBayes, NSMBayesAmortised, NSMBayesConj
from nsmbayes.report import write_report


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    task = tasks.get(options.task)
    observed = task.observe(options.observations, seed=options.seed)
    options.out.mkdir(parents=True, exist_ok=True)  # fails before training if it cannot be written to
    names: dict[str, Any] = {
        "parameter_names": task.parameter_names,
        "x_names": task.x_names,
        "grid_steps": task.grid_steps,
    }
    sampler = {} if options.effort.sampler is None else {"sampler": options.effort.sampler}
    robust, conjugate = NSMBayes(task.prior, **names, **sampler), NSMBayesConj(task.prior, **names)
    start = time.perf_counter()
    theta, x = task.simulate(options.simulations, seed=options.seed, progress=not options.quiet)
    print(f"{len(theta):,} simulations of {task.name} in {time.perf_counter() - start:.1f} s")
    for method in (robust, conjugate):
        print(f"{method.label}:", flush=True)
        method.append_simulations(theta, Table(x, task.x_names))
        method.train(seed=options.seed, settings=options.effort.training, progress=not options.quiet)
        method.save(options.out / method.name, overwrite=True)
    posteriors, seconds = {}, {}
    shared = [kind(task.prior, **names, **sampler).adopt(robust) for kind in (NSMBayesAmortised, NLE)]
    for method in (robust, shared[0], conjugate, shared[1]):
        start = time.perf_counter()
        posteriors[method.label] = method.build_posterior(Table(observed.x, task.x_names), seed=options.seed)
        seconds[method.label] = time.perf_counter() - start
    facts = {
        "simulations": f"{len(theta):,}",
        "outliers planted": f"{observed.is_outlier.sum()} of {len(observed.x)}",
    }
    for method in (robust, conjugate):
        assert method.history is not None
        epochs = f"{len(method.history.train_loss)} epochs; {method.history.stopped}"
        facts[f"{method.label}: training"] = f"{method.history.seconds:.1f} s, {epochs}"
    for label, posterior in posteriors.items():
        inside = "inside" if posterior.contains(task.theta_true) else "outside"
        facts[f"{label}: posterior"] = (
            f"MSE {posterior.mse(task.theta_true):.2f}, truth {inside} the 95 % region, {seconds[label]:.1f} s "
            "with compilation"
        )
    main, *others = posteriors.values()
    page = write_report(
        main,
        options.out,
        title=f"NSM-Bayes on contaminated {task.name} data",
        truth=task.theta_true,
        is_outlier=observed.is_outlier,
        comparisons={posterior.label: posterior for posterior in others},
        facts=facts,
    )
    for posterior in posteriors.values():
        print(f"\n{posterior.summary()}")
    width = max(map(len, facts))
    print("\n" + "\n".join(f"{key:<{width}}  {value}" for key, value in facts.items()))
    print(
        f"\nReport: {page}\nModels: {options.out / robust.name} and {options.out / conjugate.name}, for nsmbayes infer"
    )
    if options.json is not None:
        rows = [
            {
                "method": label,
                "mse": float(posterior.mse(task.theta_true)),
                "covered": bool(posterior.contains(task.theta_true)),
                "infer_s": seconds[label],
            }
            for label, posterior in posteriors.items()
        ]
        write_text(options.json, json.dumps({"task": task.name, "rows": rows}, indent=2, allow_nan=False) + "\n")
    return 0
