"""CSV files as nobody should write them: read as what they say, or refused with one sentence. Nothing is dropped.

Every file is made from rows of numbers that are known. Where it is read, exactly these must come back.
"""

import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attacks.result import Result
from nsmbayes.cli.inputs import read_csv
from nsmbayes.errors import InputError

MISSING = ["", '""', "NA", "N/A", "nan", "NaN", "null", "None", "-", "?", ".", "#N/A", "inf", "-inf", "1e999"]
HEADERS = [None, "a,b", '"a, b",c', "Unnamed: 0,b", ",b", "0,1", "1,2", "NA,NA", '"",""', "a,", "µ,σ", "a;b", "=1+1,b"]


def run(count: int, seed: int) -> Result:
    """Attack `count` times."""
    result, rng = Result(), random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "data.csv"
        for i in range(count):
            rows = [[rng.gauss(0, 10), rng.gauss(0, 10)] for _ in range(rng.choice([1, 2, 5, 40]))]
            attack = rng.choice(ATTACKS)
            content, values = attack(rows, rng)
            file.write_bytes(content)
            one(result, f"{i} {attack.__name__} {content[:60]!r}", file, values)
    return result


def one(result: Result, what: str, file: Path, values: list[list[float]] | None) -> None:
    """Read one file, and judge what came of it; `values` is None where it must be refused."""
    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            table = read_csv(file)
    except InputError as error:
        good = len(str(error)) < 1000 and "\n" not in str(error)
        result.outcomes["refused"] += good
        if not good:
            result.fail(what, "refused at length")
    except Exception as error:
        result.fail(what, f"{type(error).__name__}: {error}")
    else:
        if values is not None and np.array_equal(table.values, values):
            result.outcomes["read, with a note" if notes else "read"] += 1
        else:
            result.fail(what, f"read as {table.values.tolist()[:3]}")


Attack = Callable[[list[list[float]], random.Random], tuple[bytes, list[list[float]] | None]]


def _text(rows: list[list[float]], header: str | None = None, separator: str = ",") -> str:
    head = "" if header is None else header + "\n"
    return head + "".join(separator.join(map(repr, row)) + "\n" for row in rows)


def headers(rows: list[list[float]], rng: random.Random) -> tuple[bytes, list[list[float]] | None]:
    """Some first line; one that counts no rows and has no name is an index of something else."""
    header = rng.choice(HEADERS)
    if header == "1,2":  # an observation like any other
        return _text(rows, header).encode(), [[1.0, 2.0], *rows]
    return _text(rows, header).encode(), rows if header in (None, "a,b", '"a, b",c', "µ,σ", "=1+1,b") else None


def missing(rows: list[list[float]], rng: random.Random) -> tuple[bytes, None]:
    """A missing value in some place, also the first, with and without a header."""
    lines = _text(rows).splitlines()
    i, token = rng.randrange(len(lines)), rng.choice(MISSING)
    cells = lines[i].split(",")
    cells[rng.randrange(2)] = token
    lines[i] = ",".join(cells)
    return ("\n".join([*rng.choice([[], ["a,b"]]), *lines]) + "\n").encode(), None


def missing_in_one_column(rows: list[list[float]], rng: random.Random) -> tuple[bytes, None]:
    """Likewise where a line is a single cell."""
    lines = [repr(row[0]) for row in rows]
    lines[rng.choice([0, len(lines) - 1])] = rng.choice(MISSING[1:])
    return ("\n".join([*lines, "1.5"]) + "\n").encode(), None


def decimal_commas(rows: list[list[float]], rng: random.Random) -> tuple[bytes, None]:
    """As in half of Europe."""
    text = _text(rows, rng.choice([None, "a;b"]), ";").replace(".", ",")
    return text.encode(), None


def separators(rows: list[list[float]], rng: random.Random) -> tuple[bytes, None]:
    """Other than commas."""
    return _text([*rows, [1.5, 2.5]], rng.choice([None, "a"]), rng.choice([";", "\t", "|", " "])).encode(), None


def indices(rows: list[list[float]], rng: random.Random) -> tuple[bytes, list[list[float]] | None]:
    """Written by pandas or R, numbered or named."""
    start, quoted = rng.choice([0, 1]), rng.choice(['""', ""])
    named = rng.random() < 0.3
    index = ["row" * named + str(i + start) for i in range(len(rows))]
    lines = [f"{i},{a!r},{b!r}" for i, (a, b) in zip(index, rows, strict=True)]
    return ("\n".join([f"{quoted},a,b", *lines]) + "\n").encode(), None if named else rows


def encodings(rows: list[list[float]], rng: random.Random) -> tuple[bytes, list[list[float]] | None]:
    """Ends of lines, byte order marks, and what is not UTF-8."""
    how = rng.choice(["utf-8", "utf-8-sig", "utf-16", "utf-32", "windows", "mac", "latin-1"])
    text = _text(rows, "é,b" if how == "latin-1" else rng.choice([None, "a,b"]))
    if how in ("windows", "mac"):
        return text.replace("\n", "\r\n" if how == "windows" else "\r").encode(), rows
    return text.encode(how), rows if how.startswith("utf-8") else None


def garbage(rows: list[list[float]], rng: random.Random) -> tuple[bytes, None]:
    """Bytes of all kinds, cells of a megabyte, quotes without an end."""
    how = rng.randrange(6)
    return [
        rng.randbytes(200),
        b"1.5,2.5\n" + b"9" * 10**6 + b",1.0\n",
        b'1.5,"2.5\n3.5,4.5\n',
        b"1.5,2.5\n\x00,1.0\n",
        _text(rows).encode() + b"1.5\n",
        b"\x1b[2J,\x07\n1.5,=cmd\n",
    ][how], None


ATTACKS: list[Attack] = [
    headers, missing, missing_in_one_column, decimal_commas, separators, indices, encodings, garbage,
]  # fmt: skip
