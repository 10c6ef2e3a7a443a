"""A sample of the attacks in `attacks/`, which `make attacks` runs in full."""

import random
import runpy
import warnings
from types import SimpleNamespace

import numpy as np

from attacks import files, fuzz, kills, models, replacements
from attacks.result import Result


def test_hostile_models_are_refused_or_whole():
    result = models.run(60, seed=7, today=False)
    assert result.failures == []
    assert result.outcomes["refused"] > 40


def test_hostile_files_are_refused_or_read_as_they_are():
    result = files.run(100, seed=0)
    assert result.failures == []
    assert {"read", "refused", "read, with a note"} <= set(result.outcomes)


def test_a_killed_save_leaves_a_model(tmp_path):
    result = Result()
    kills.saves(result, tmp_path, random.Random(0), 1)
    assert result.outcomes == {"save: whole": 1}


def test_the_reader_is_fuzzed(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # notes about index columns
        fuzz.fuzz_csv(tmp_path)()


def test_the_page_shows_what_is_stored():
    script = runpy.run_path(str(kills.ROOT / "docs" / "make_attacks.py"))
    text = script["page"]()
    assert (kills.ROOT / "docs" / "attacks.md").read_text() == text, "run docs/make_attacks.py"
    for name in ("models", "files"):
        assert f"| {name} | {script['stored'](name)['tried']:,} |" in text


def test_replaced_rows_are_judged():
    """What a posterior does not have to do to pass: a robust one that moved with a distant row has failed."""
    result, done = Result(), {"kind": "one", "distance": 1e6}
    reference = SimpleNamespace(mean=np.zeros(2), std=np.ones(2))
    for shift, robust in ((0.5, True), (5.0, True), (5.0, False), (np.nan, True)):
        certificate = SimpleNamespace(robust=robust)
        posterior = SimpleNamespace(
            mean=np.full(2, shift), std=np.ones(2), certificate=certificate, warnings=("far",) * (not robust)
        )
        replacements._one(result, "this", lambda posterior=posterior: posterior, reference, done)
    assert result.outcomes == {"moved by less": 1, "FAILED": 2, "moved by more than 3, far, with a warning": 1}
    assert "moved a certified posterior by 5" in result.failures[0]
