"""Apply a saved model to observations in a CSV file, one observation per row."""

import argparse
import csv
import io
import json
from pathlib import Path

from nsmbayes._internal import checks
from nsmbayes._internal.files import write_text
from nsmbayes.cli.inputs import load_method, read_csv
from nsmbayes.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", type=Path, help="folder written by save() or by nsmbayes demo")
    parser.add_argument("data", type=Path, help="CSV file; a first line of names is allowed")
    parser.add_argument("--out", type=Path, help="folder for posterior.json, draws.csv and report.html")
    parser.add_argument("--beta", type=float, help="learning rate; calibrated if left out")
    parser.add_argument("--draws", type=int, default=1000, help="posterior draws to write (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    draws = checks.integer(options.draws, "draws", at_least=1)
    method = load_method(options.model)
    posterior = method.build_posterior(read_csv(options.data), beta=options.beta, seed=options.seed)
    print(posterior.summary())
    if options.out is None:
        return 0
    page = write_report(posterior, options.out, title=f"Posterior given {options.data.name}")
    result = {
        "parameters": posterior.parameter_names,
        "mean": posterior.mean.tolist(),
        "covariance": posterior.covariance.tolist(),
        "beta": posterior.beta,
        "n": posterior.n,
        "weights": posterior.weights.tolist(),
    }
    write_text(options.out / "posterior.json", json.dumps(result, indent=2) + "\n")
    table = io.StringIO()
    rows = posterior.sample((draws,), seed=options.seed)
    csv.writer(table, lineterminator="\n").writerows(
        [posterior.parameter_names, *([f"{value:.8g}" for value in row] for row in rows)]
    )
    write_text(options.out / "draws.csv", table.getvalue())
    print(f"\nReport: {page}")
    return 0
