"""Saved posteriors that lack some of their arrays, or have numbers that none can have, are refused."""

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from support.builders import conjugate, general, mdn

import nsmbayes as nsm


def changed(path, change):
    """Change the arrays of a saved posterior, as someone who knows the format would."""
    file = path / "arrays.safetensors"
    arrays = load_arrays(file.read_bytes())
    change(arrays)
    data = save_arrays(arrays)
    file.write_bytes(data)
    header = json.loads((path / "model.json").read_text()) | {"arrays_sha256": hashlib.sha256(data).hexdigest()}
    del header["sha256"]
    header["sha256"] = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    (path / "model.json").write_text(json.dumps(header))
    return path


@pytest.mark.parametrize(
    "name", ["result.divergences", "result.ess_tail", "influence.kl", "influence.reliable", "location", "scatter"]
)
def test_arrays_that_belong_together_are_all_there(name, tmp_path):
    path = general(mdn(1)).save(tmp_path / "posterior")
    nsm.load(changed(path, lambda arrays: None))
    with pytest.raises(nsm.InputError, match=f"lacks the array '{name}'"):
        nsm.load(changed(path, lambda arrays: arrays.pop(name)))


def test_files_from_before_tails_were_asked_are_read(tmp_path):
    path = general(mdn(1)).save(tmp_path / "posterior")

    def older(arrays):
        ones = np.ones(len(arrays["x"]))
        arrays |= {f"suspects.{name}": ones for name in ("values", "found", "expected")}
        arrays["suspects.column"] = np.full(len(ones), -1)

    assert (nsm.load(changed(path, older)).factor_by_number().kept == 1).all()


def test_numbers_in_single_precision_are_compared_in_double(tmp_path):
    path = conjugate(1).save(tmp_path / "posterior")

    def single(arrays):
        arrays["draws"] = arrays["draws"].astype(np.float32)

    assert nsm.load(changed(path, single)).sample((5,), seed=0).shape == (5, 2)  # and no warning of an overflow
