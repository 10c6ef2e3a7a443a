"""Apply a saved model to observations in a CSV file, one observation a row."""

import argparse
import csv
import io
import json
import math
from pathlib import Path

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._files import write_text
from nsmbayes.methods import load
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
    draws = _checks.integer(options.draws, "draws", at_least=1)
    method = load(options.model)
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


def read_csv(path: Path) -> Float[np.ndarray, "n d_x"]:
    """Numbers of a CSV file; blank lines are skipped. A cell that is not a number is an error that names its line.

    A first line without any number in it is a header.
    """
    if not path.is_file():
        raise InputError(f"`data` {path} is not a file.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, cells) for cells in reader if len(cells) > 1 or any(map(str.strip, cells))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"`data` {path} is not a CSV file in UTF-8 ({error}). Export it as one.") from error
    has_header = bool(lines) and not any(map(_is_number, lines[0][1]))
    if len(lines) == has_header:
        raise InputError(f"`data` {path} holds no observations. It must have one a row.")
    width = len(lines[0][1])
    for number, cells in lines[has_header:]:
        if len(cells) != width:
            raise InputError(f"`data` {path}, line {number}: {len(cells)} columns where the first row has {width}.")
        for cell in cells:
            if not _is_number(cell) or not math.isfinite(float(cell)):
                raise InputError(
                    f"`data` {path}, line {number}: {cell!r} is not a finite number. Mend or drop the row."
                )
    return np.array([[float(cell) for cell in cells] for _, cells in lines[has_header:]])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # 1_000 is a number in Python's eyes only
