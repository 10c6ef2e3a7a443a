"""The study of size runs at sizes that say nothing, goes on where it stopped, and ends up on the performance page."""

import importlib
import json

import numpy as np
import pytest
from support.docs_scripts import ROOT
from support.effort import PriorSampler

import nsmbayes as nsm


@pytest.fixture
def study(monkeypatch):
    """The script of the study."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("make_scale")


@pytest.fixture
def brief(study):
    """Nothing is trained or sampled to speak of, and nothing asked that takes long to compile."""
    options = {
        "sampler": PriorSampler(),
        "surrogate": nsm.MDN(components=1, hidden=(4,)),
        "scatter": "mad",
        "noise_levels": (0.5,),
        "calibration": None,
        "excess": None,
    }
    return study.Effort(sets=1, simulations=200, epochs=1, options=tuple(options.items()))


def test_rows_are_added_once_and_stored(study, brief, tmp_path):
    study.run(tmp_path, "gaussian", [2], brief)
    study.run(tmp_path, "gaussian", [2], brief)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"part": "gauss')  # a process that was killed
    (row,) = study.read(tmp_path / "rows.jsonl")
    assert (row["part"], row["size"], row["set"]) == ("gaussian", 2, 0)
    assert 0 < row["smallest_ratio"] <= row["sd_ratio"] <= row["largest_ratio"]
    assert 0 < row["mean_off"] <= row["worst_mean_off"]
    stored = tmp_path / "stored.json"
    other = row | {"size": 3}
    stored.write_text(json.dumps({"rows": [row | {"seconds": -1.0}, other]}))
    study.store(tmp_path, stored)
    rows = json.loads(stored.read_text())["rows"]
    assert [(row["size"], row["seconds"] > 0) for row in rows] == [(2, True), (3, True)]  # the new row, and the other


def test_the_exact_posterior_is_that_of_the_good_rows(study, brief, monkeypatch):
    """A posterior that is the exact one is not off at all."""
    seed, problem = study.SEED + 2, study.location(2)
    rng = np.random.default_rng([seed, 2, 0])
    clean, truth = problem.observe(rng, 100)
    x, bad = study.contaminate(clean, study.FAR, rng)
    covariance = study.noise_factor(2) @ study.noise_factor(2).T
    gain = np.linalg.inv(np.eye(2) + covariance / (90 * 4.0))
    mean, sd = gain @ x[~bad].mean(axis=0), np.sqrt(np.diag(gain @ covariance / 90))

    class Exact:
        weights, beta = np.ones(100), 1.0

        def mse(self, truth):
            return 0.0

        def contains(self, truth):
            return True

    Exact.mean, Exact.std = mean, sd
    monkeypatch.setattr(study, "trained", lambda *_: None)
    monkeypatch.setattr(study, "_timed", lambda *_: (Exact(), 1.0))
    (exact,) = study.gaussian_rows(2, [0], brief)
    assert exact["worst_mean_off"] < 1e-9
    assert exact["largest_ratio"] == pytest.approx(1.0)
    assert np.abs(mean - truth).max() < 6 * sd.max()


@pytest.mark.parametrize(("problem", "columns"), [("decay", 6), ("traces", 4)])
def test_simulators_give_finite_columns(study, problem, columns):
    made = study.decay(6) if problem == "decay" else study.traces()
    x, truth = made.observe(np.random.default_rng(0), 50)
    assert x.shape == (50, columns)
    assert np.isfinite(x).all()
    assert len(truth) == 4
    assert np.linalg.matrix_rank(np.cov(x.T)) == columns


def test_every_part_is_offered(study, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(study, "run", lambda folder, part, sizes, effort: asked.append((part, sizes)))
    study.main(["run", str(tmp_path)])
    assert asked == [(name, list(part.sizes)) for name, part in study.PARTS.items()]
    study.main(["run", str(tmp_path), "--part", "sir", "--size", "100"])
    assert asked[-1] == ("sir", [100])
