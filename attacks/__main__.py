"""Run one attack, or all of them."""

import argparse
import json
import sys
from pathlib import Path

from attacks import files, kills, models, replacements, soak
from nsmbayes.experiments import machine

RESULTS = Path(__file__).parent / "results"
ATTACKS = {
    "models": (models.run, 1000),
    "files": (files.run, 100),
    "kills": (kills.run, 100),
    "soak": (soak.run, 500),
} | {name: (attack, 10_000) for name, attack in replacements.RUNS.items()}


def main() -> int:
    """Parse the command line, attack, and print and store the counts."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description="Attack the package, and count.")
    parser.add_argument("attack", choices=(*ATTACKS, "all"))
    parser.add_argument(
        "--count", type=int, help="default: 1,000 models, 100 files, 100 kills, 500 posteriors, 10,000 replacements"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the counts (default: attacks/results)")
    options = parser.parse_args()
    failed = 0
    for name in ATTACKS if options.attack == "all" else (options.attack,):
        attack, count = ATTACKS[name]
        result = attack(options.count or count, options.seed)
        document = {"attack": name, "seed": options.seed, "machine": machine.facts()} | result.as_json()
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
        print(json.dumps(document, indent=2), flush=True)
        failed += len(result.failures)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
