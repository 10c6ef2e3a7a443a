"""Apply a saved model to observations in a CSV file, one observation a row."""

import argparse
import csv
import json
from pathlib import Path

import numpy as np
from jaxtyping import Float

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
    method = load(options.model)
    posterior = method.build_posterior(read_csv(options.data), beta=options.beta, seed=options.seed)
    print(posterior.summary())
    if options.out is None:
        return 0
    draws = posterior.sample((options.draws,), seed=options.seed)
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
    lines = [",".join(posterior.parameter_names), *(",".join(f"{value:.8g}" for value in draw) for draw in draws)]
    write_text(options.out / "draws.csv", "\n".join(lines) + "\n")
    print(f"\nReport: {page}")
    return 0


def read_csv(path: Path) -> Float[np.ndarray, "n d_x"]:
    """Numbers of a CSV file. A cell that is not a number is an error that names its line, unless it is in a header."""
    if not path.is_file():
        raise InputError(f"`data` {path} is not a file.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [(number, cells) for number, cells in enumerate(csv.reader(file), 1) if any(map(str.strip, cells))]
    if lines and not any(_is_number(cell) for cell in lines[0][1]):
        lines = lines[1:]
    if not lines:
        raise InputError(f"`data` {path} holds no observations.")
    width = len(lines[0][1])
    for number, cells in lines:
        if len(cells) != width:
            raise InputError(f"`data` {path}, line {number}: {len(cells)} columns where the first row has {width}.")
        for cell in cells:
            if not _is_number(cell):
                raise InputError(f"`data` {path}, line {number}: {cell!r} is not a number.")
    return np.array([[float(cell) for cell in cells] for _, cells in lines])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
