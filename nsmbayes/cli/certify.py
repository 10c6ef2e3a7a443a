"""Certify the robustness of a posterior, and list the observations with low weights.

Exits with 0 if certified robust, 1 if not, 2 after an error.
"""

import argparse
import json
import math
from dataclasses import asdict
from typing import Any

from nsmbayes._internal.files import write_text
from nsmbayes.cli.inputs import load_method, read_data
from nsmbayes.posteriors import Outlier, outlier_table
from nsmbayes.posteriors.caveats import wrapped


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    method = load_method(options.model)
    posterior = method.build_posterior(read_data(options, method), beta=options.beta, seed=options.seed)
    certificate, rows = posterior.certificate, posterior.outliers(options.outliers)
    print("\n".join([certificate.explain(), *("\n" + wrapped(warning) for warning in posterior.warnings)]))
    print(f"\nThe {len(rows)} observations with the smallest weights:\n{outlier_table(rows)}")
    if options.json is not None:
        table = [_as_json(row) for row in rows]
        document = {
            "certificate": certificate.as_json(),
            "warnings": posterior.warnings,
            "beta": posterior.beta,
            "n": posterior.n,
            "outliers": table,
        }
        write_text(options.json, json.dumps(document, indent=2, allow_nan=False) + "\n")
    return 0 if certificate.robust else 1


def _as_json(row: Outlier) -> dict[str, Any]:
    influence = None if math.isnan(row.influence) else row.influence
    return asdict(row) | {"value": row.value.tolist(), "influence": influence}
