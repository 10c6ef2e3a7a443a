"""Train a method on a campaign, and save it."""

import argparse
import json
from typing import Any

from nsmbayes._internal import checks
from nsmbayes._internal.files import write_text
from nsmbayes.errors import InputError
from nsmbayes.methods import METHODS, SurrogateMethod
from nsmbayes.simulators.campaigns import Campaign, read_prior


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    known = {name: method for name, method in METHODS.items() if issubclass(method, SurrogateMethod)}
    kind: Any = known[checks.choice(options.method, "method", tuple(known))]
    campaign = Campaign(options.campaign)
    prior = campaign.prior if options.prior is None else read_prior(options.prior)[0]
    if options.out.exists() and not options.overwrite:
        raise InputError(f"`--out` {options.out} exists already. Choose another, or pass --overwrite.")
    steps = None if options.grid_steps is None else tuple(map(float, options.grid_steps.split(",")))
    method = kind(prior, parameter_names=campaign.parameter_names, grid_steps=steps)
    method.append_simulations(campaign, drop_failures=options.drop_failures)
    method.train(seed=options.seed, settings=options.effort.training, progress=not options.quiet)
    method.save(options.out, overwrite=options.overwrite)
    history = method.history
    print(f"{method.label} on {method.simulations_used:,} simulations: {history.seconds:.1f} s; {history.stopped}")
    if method.dropped:
        print(f"{method.dropped:.2%} of the simulations failed and were dropped.")
    print(f"Model: {options.out}")
    if options.json is not None:
        document = {
            "method": method.name,
            "model": str(options.out),
            "simulations": method.simulations_used,
            "dropped_simulations": method.dropped,
            "epochs": len(history.train_loss),
            "best_validation_loss": history.best_validation_loss,
            "seconds": history.seconds,
            "stopped": str(history.stopped),
        }
        write_text(options.json, json.dumps(document, indent=2, allow_nan=False) + "\n")
    return 0
