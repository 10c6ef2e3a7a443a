"""Write docs/attacks.md from attacks/results: no number on that page is typed by hand.

`python docs/make_attacks.py` uses whatever results there are. With `--check` it only tells whether the page is up to
date.
"""

import argparse
import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS, PAGE = DOCS.parent / "attacks" / "results", DOCS / "attacks.md"
_METHODS = {"nsm-bayes": "NSM-Bayes", "nsm-bayes-amortised": "NSM-Bayes-amortised", "nsm-bayes-conj": "NSM-Bayes-conj"}
_INTRODUCTION = """# Attacks

This page lists attacks on the package and their outcomes. `python -m attacks models` (or `files`, `kills`, `soak`,
`replacements-nsm-bayes`, ...) repeats an attack, with a `--count` and a `--seed`, and stores its counts in
`attacks/results`, from which this page is written. A small sample of each attack is part of the tests.

| attack | tried | outcomes | failures |
|---|---|---|---|
"""
_ABOUT = """
- **models**: folders of models, posteriors and statistics with other values, types, shapes and sizes; the attacker
  knows the format and corrects every checksum (a checksum is not a signature). Each folder is either refused with a
  message, within a second of processor time and 100 MB, or is valid: its numbers are finite, it can be saved again and
  used (NSM-Bayes-conj builds a posterior, posteriors are summarised). If anything is executed or sent, that is a
  failure.
- **files**: badly formatted CSV files. Each is read as exactly the numbers from which it was made, or refused.
- **kills**: SIGKILL at a random moment while a model is overwritten, trained, used by `nsmbayes infer --out`, or in
  `nsmbayes reproduce`, which is then resumed until it ends and compared with a run that was not killed.
- **soak**: posteriors in one process, then as many in eight threads: the numbers must be the same each time, and the
  memory must not grow.
- **replacements**: rows of a data set of 40 are replaced by arbitrary values, and everything is fitted again, at a
  fixed learning rate.
"""
_REPLACEMENTS = """
## How far replaced rows move a posterior

The largest shift of a posterior mean, in posterior standard deviations of the clean data, with location, scatter,
factors by number and draws fitted again: one row, or up to 30 % of the rows in a cluster, on both sides, or
scattered. Rows near the bulk can move a posterior, as they should: they are data. A failure is a row more than
1,000 scales away that moves a certified posterior by more than two standard deviations (losing one row can move it
by about 0.9), or several distant rows that move it by three without a warning.

| method | kind | up to 1 scale | 1 to 10 | 10 to 1,000 | beyond |
|---|---|---|---|---|---|
"""
_CAMPAIGNS = """
## Killed campaigns

A campaign of a slow simulator, compared bit by bit with one that was not killed (`python -m bench.kills`).

| killed | how often | committed batches lost or changed | rows failed | arrays equal |
|---|---|---|---|---|
"""


def stored(name: str) -> dict[str, Any] | None:
    """A result, if there is one."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def page() -> str:
    """The whole page."""
    names = ["models", "files", "kills", "soak", *(f"replacements-{method}" for method in _METHODS)]
    results = {name: result for name in names if (result := stored(name)) is not None}
    lines = [_row(name, result) for name, result in results.items()]
    missing = [name for name in names if name not in results]
    text = _INTRODUCTION + "\n".join(lines) + "\n" + _ABOUT
    if missing:
        text += f"\nNot run to the end yet: {', '.join(missing)}.\n"
    moved = {method: results[name] for method in _METHODS if (name := f"replacements-{method}") in results}
    if moved:
        text += _REPLACEMENTS + "".join(_shifts(_METHODS[method], result) for method, result in moved.items())
        text += "".join(_bound(_METHODS[method], result["detail"]) for method, result in moved.items())
    campaigns = stored("campaigns")
    if campaigns is not None:
        text += _CAMPAIGNS + "".join(_killed(what, found) for what, found in campaigns["detail"].items())
    return text


def _row(name: str, result: dict[str, Any]) -> str:
    came = ", ".join(f"{what} {count:,}" for what, count in sorted(result["outcomes"].items()) if what != "FAILED")
    if name == "models":
        came += f"; slowest refusal {result['slowest_s']:.2g} s, {result['memory_mb']:.0f} MB"
    if name == "soak":
        came += f"; memory grew by {result['memory_mb']:.0f} MB after the first fifth"
    also = result["outcomes"].get(
        "below the bound, with the weight as it stands", 0
    )  # of rows that were counted already
    tried = result["detail"].get("tried", result["tried"] - also)
    return f"| {name} | {tried:,} | {came} | {len(result['failures'])} |"


def _shifts(label: str, result: dict[str, Any]) -> str:
    text = ""
    for kind, bands in result["detail"]["largest_shift"].items():
        largest = {band.partition(" ")[0]: found["largest"] for band, found in bands.items()}
        cells = " | ".join(f"{largest[low]:.2f}" if low in largest else "-" for low in ("0", "1", "10", "1000"))
        text += f"| {label} | {kind} | {cells} |\n"
    return text


def _bound(label: str, detail: dict[str, Any]) -> str:
    if detail["influence_bound"] is None:
        return f"\n{label} was not certified.\n"
    return (
        f"\n{label}: with the weight held fixed one replaced row gave a divergence of at most "
        f"{detail['largest_divergence_weight_as_it_stands']:.2g}, where {detail['influence_bound']:.3g} is certified.\n"
    )


def _killed(what: str, found: dict[str, Any]) -> str:
    lost, failed = found.get("committed_batches_lost_or_changed", 0), found.get("rows_failed", 0)
    times = found.get("kills", found.get("killed"))
    return f"| {what} | {times} | {lost} | {failed} | {'yes' if found['equal'] else 'NO'} |\n"


def main() -> int:
    """Write the page, or tell whether it is up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
