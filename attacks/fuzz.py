"""Fuzzing with Hypothesis for a given time: the CSV reader and the model loader, half of it each.

`python -m attacks.fuzz --seconds 60`. Whatever the bytes, a file is read as finite numbers or refused with one
sentence, and a folder is loaded whole or refused.
"""

import argparse
import copy
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from attacks import models
from attacks.result import Result
from nsmbayes.cli.inputs import read_csv
from nsmbayes.errors import InputError

_EXAMPLES = 100  # between looks at the clock
_CELL = st.one_of(
    st.floats(allow_nan=True).map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["", '""', "NA", "nan", "a", "0", "1", "1,5", '"1,5"', "1;5", "=1", "1_0", "١", "\x00", "\t", "\ufeff"]
    ),
    st.text(max_size=5),
)
_FILE = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.lists(_CELL, max_size=4).map(",".join), max_size=6).map(lambda rows: "\n".join(rows).encode()),
)
_VALUE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(models.VALUES)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


def fuzz_csv(scratch: Path) -> Callable[[], None]:
    """A test of the reader."""

    @_settings
    @hypothesis.given(_FILE)
    def test(content: bytes) -> None:
        (scratch / "data.csv").write_bytes(content)
        try:
            values = read_csv(scratch / "data.csv").values
        except InputError:
            return
        assert values.ndim == 2
        assert np.isfinite(values).all()

    return test


def fuzz_models(scratch: Path) -> Callable[[], None]:
    """A test of the loader."""
    folders = models.bases(scratch)
    headers = [json.loads((folder / "model.json").read_text()) for folder in folders]
    victim = scratch / "victim"

    @_settings
    @hypothesis.given(st.integers(0, len(folders) - 1), st.data())
    def test(which: int, data: st.DataObject) -> None:
        header = copy.deepcopy(headers[which])
        places = [place for place in models.places_in(header) if place[0] not in ("sha256", "arrays_sha256")]
        place, value = data.draw(st.sampled_from(places)), data.draw(_VALUE)
        inner: Any = header
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(folders[which], victim)
        models.sign(victim, header)
        result = Result()
        models.one(result, f"{place} {value!r}", victim)
        assert not result.failures, result.failures

    return test


_settings = hypothesis.settings(
    max_examples=_EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=(hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large),
)


def run(seconds: float) -> dict[str, int]:
    """Fuzz for so long; how many examples each target had. A failure is an error that shows its example."""
    tried = {}
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # notes about index columns
        for make in (fuzz_csv, fuzz_models):
            folder = Path(scratch) / make.__name__
            folder.mkdir()
            test, rounds, end = make(folder), 0, time.monotonic() + seconds / 2
            while time.monotonic() < end:
                hypothesis.seed(time.time_ns())(test)()
                rounds += 1
            tried[make.__name__] = rounds * _EXAMPLES
    return tried


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    print(json.dumps(run(parser.parse_args().seconds)), file=sys.stderr)
