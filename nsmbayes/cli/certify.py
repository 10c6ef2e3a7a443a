"""Certify the robustness of a posterior, and list the observations it distrusts. Exits with 0 if robust, 1 if not."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nsmbayes._internal.files import write_text
from nsmbayes.cli.inputs import load_method, read_csv
from nsmbayes.posteriors import Outlier, outlier_table
from nsmbayes.posteriors.outliers import SHOWN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", type=Path, help="folder written by save() or by nsmbayes demo")
    parser.add_argument("data", type=Path, help="CSV file; a first line of names is allowed")
    parser.add_argument("--beta", type=float, help="learning rate; calibrated if left out")
    parser.add_argument("--outliers", type=int, default=SHOWN, help=f"observations to list (default: {SHOWN})")
    parser.add_argument("--json", type=Path, help="file for the certificate and the table")
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    method = load_method(options.model)
    posterior = method.build_posterior(read_csv(options.data), beta=options.beta, seed=options.seed)
    certificate, rows = posterior.certificate, posterior.outliers(options.outliers)
    print(certificate.explain())
    print(f"\nThe {len(rows)} observations with the smallest weights:\n{outlier_table(rows)}")
    if options.json is not None:
        table = [_as_json(row) for row in rows]
        document = {"certificate": certificate.as_json(), "beta": posterior.beta, "n": posterior.n, "outliers": table}
        write_text(options.json, json.dumps(document, indent=2, allow_nan=False) + "\n")
    return 0 if certificate.robust else 1


def _as_json(row: Outlier) -> dict[str, Any]:
    influence = None if math.isnan(row.influence) else row.influence
    return asdict(row) | {"value": row.value.tolist(), "influence": influence}
