"""A sample of the attacks in `attacks/`, which `make attacks` runs in full."""

import random
import warnings

from attacks import files, fuzz, kills, models
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
