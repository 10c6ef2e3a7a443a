"""Apply a saved model to observations in a CSV file, one observation per row."""

import argparse
import csv
import io
import json

from nsmbayes._internal import checks
from nsmbayes._internal.files import write_text
from nsmbayes._internal.text import cell, escape
from nsmbayes.cli.inputs import load_method, read_data
from nsmbayes.posteriors import Posterior
from nsmbayes.posteriors.arviz import write_netcdf
from nsmbayes.report import write_report


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    draws = checks.integer(options.draws, "draws", at_least=1)
    method = load_method(options.model)
    posterior = method.build_posterior(read_data(options, method), beta=options.beta, seed=options.seed)
    print(posterior.summary())
    if options.json is not None:
        write_text(options.json, _as_json(posterior))
    if options.netcdf is not None:
        write_netcdf(posterior, options.netcdf)
        print(f"\nNetCDF: {escape(str(options.netcdf))}")
    if options.out is None:
        return 0
    page = write_report(posterior, options.out, title=f"Posterior given {options.data.name}")
    write_text(options.out / "posterior.json", _as_json(posterior))
    table = io.StringIO()
    rows = posterior.sample((draws,), seed=options.seed)
    csv.writer(table, lineterminator="\n").writerows(
        [map(cell, posterior.parameter_names), *([f"{value:.8g}" for value in row] for row in rows)]
    )
    write_text(options.out / "draws.csv", table.getvalue())
    print(f"\nReport: {escape(str(page))}")
    return 0


def _as_json(posterior: Posterior) -> str:
    """The JSON document of a posterior for `--json` and `--out`."""
    verdict = posterior.known_verdict()
    result = {
        "parameters": posterior.parameter_names,
        "mean": posterior.mean.tolist(),
        "covariance": posterior.covariance.tolist(),
        "beta": posterior.beta,
        "n": posterior.n,
        "weights": posterior.weights.tolist(),
        "verdict": None if verdict is None else verdict.as_json(),
        "warnings": posterior.warnings,
        "dropped_simulations": posterior.provenance.dropped,
    }
    return json.dumps(result, indent=2) + "\n"
