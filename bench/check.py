"""Find measurements that are worse than a stored baseline: `python -m bench.check`, or `make bench-check`.

Costs are compared relative to a matrix product of the same run, so that a baseline is valid on other machines and at
other times as far as possible. Run it only by hand, on an idle machine: a busy machine gives false alarms. `--store`
makes the present measurements the baseline; `--from` reads the output of `nsmbayes bench --json`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).parent / "results" / "baseline.json"
TOLERANCE = 0.2


def ratios(document: Mapping[str, Any]) -> dict[str, float]:
    """Costs on the CPU measured by `nsmbayes bench`, each in units of the time for 1e9 operations of a matrix product.

    Training is compared with products in float32, everything else in float64.
    """
    device = next(one for one in document["devices"] if one["device"] == "cpu")
    rates = device["matrix_gflops"]
    found = {"import": document["import_s"] * rates["float64"]}
    for row in device["training"]:
        name = f"training, d_x = {row['d_x']}"
        found[f"{name}, thousand simulations"] = 1e-3 * row["us_per_simulation"] * rates["float32"]
        found[f"{name}, compilation"] = row["compile_s"] * rates["float64"]
    for row in device["posteriors"]:
        found[f"{row['what']}, posterior"] = row["seconds"] * rates["float64"]
        found[f"{row['what']}, compilation"] = row["compile_s"] * rates["float64"]
        found[f"{row['what']}, thousand effective draws"] = 1e3 / row["effective_draws_per_s"] * rates["float64"]
    return found


def losses(found: Mapping[str, float], baseline: Mapping[str, float], tolerance: float = TOLERANCE) -> list[str]:
    """Describe measurements that are worse by more than the tolerance, or no longer made."""
    worse = [
        f"{name}: {found[name] / before - 1:.0%} worse ({before:.3g} before, {found[name]:.3g} now)"
        for name, before in baseline.items()
        if name in found and found[name] > (1 + tolerance) * before
    ]
    return worse + [f"{name}: not measured" for name in baseline if name not in found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, and exit with 1 if something got worse."""
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", action="store_true", help="make these measurements the baseline")
    parser.add_argument("--from", dest="document", type=Path, help="what nsmbayes bench --json wrote")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="default: bench/results/baseline.json")
    options = parser.parse_args(arguments)
    if not options.store and not options.baseline.is_file():
        parser.error(f"there is no baseline {options.baseline.name} to compare with: make one with --store")
    document = _measure() if options.document is None else json.loads(options.document.read_text())
    found = ratios(document)
    if options.store:
        kept = {"machine": document["machine"], "load_before": document["load_before"], "ratios": found}
        options.baseline.write_text(json.dumps(kept, indent=2) + "\n")
        print(f"stored {len(found)} measurements")
        return 0
    worse = losses(found, json.loads(options.baseline.read_text())["ratios"])
    print("\n".join(worse) or f"none of {len(found)} measurements is more than {TOLERANCE:.0%} worse")
    return 1 if worse else 0


def _measure() -> dict[str, Any]:
    from nsmbayes.cli import bench
    from nsmbayes.experiments import Effort

    return bench.measure(argparse.Namespace(effort=Effort(), quiet=True))


if __name__ == "__main__":
    sys.exit(main())
