"""Run one attack, or all of them."""

import argparse
import json
import sys

from attacks import files, kills, models, soak

ATTACKS = {"models": (models.run, 1000), "files": (files.run, 100), "kills": (kills.run, 100), "soak": (soak.run, 500)}


def main() -> int:
    """Parse the command line, attack, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description="Attack the package, and count.")
    parser.add_argument("attack", choices=(*ATTACKS, "all"))
    parser.add_argument("--count", type=int, help="default: 1,000 models, 100 files, 100 kills, 500 posteriors")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = 0
    for name in ATTACKS if options.attack == "all" else (options.attack,):
        attack, count = ATTACKS[name]
        result = attack(options.count or count, options.seed)
        print(json.dumps({name: result.as_json()}, indent=2))
        failed += len(result.failures)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
