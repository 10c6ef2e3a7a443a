"""`nsmbayes reproduce`: which experiments it runs, how, and what it leaves behind."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.effort import little_effort, prior_draws
from support.synthetic import a_row

import nsmbayes as nsm
from nsmbayes.cli import main, reproduce
from nsmbayes.errors import ConvergenceError
from nsmbayes.experiments import StoredRepeat

SIZES = ["--simulations", "500", "--observations", "100", "--quiet"]


def test_reproduce_follows_the_schema(tmp_path, monkeypatch, capsys):
    def oracle(task, clean_x, *, draws, seed):
        assert clean_x.shape in {(100, 1), (90, 1)}
        return prior_draws(task, clean_x, draws=draws, seed=seed)

    monkeypatch.chdir(tmp_path)
    file = tmp_path / "new" / "out.json"
    command = ["reproduce", "gnk", "--methods", " nsm-bayes-conj", "--preset", "default", "--repeats", "2"]
    command += ["--workers", "1"]
    assert main([*command, "--seed", "100", *SIZES, "--json", str(file)], effort=little_effort(oracle=oracle)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    document = json.loads(file.read_text())
    assert (document["task"], document["preset"]) == ("gnk", "default")
    assert [(r["method"], r["repeat"], r["seed"]) for r in document["rows"]] == [
        ("nsm-bayes-conj", 0, 100),
        ("nsm-bayes-conj", 1, 101),
    ]
    for row in document["rows"]:
        assert isinstance(row["covered"], bool)
        for name in ("mse", "mmd2_ref", "train_s", "infer_s", "oracle_mse"):
            assert isinstance(row[name], float)
            assert np.isfinite(row[name])
            assert row[name] > 0
        assert f"repeat {row['repeat']} nsm-bayes-conj: MSE {row['mse']:.2f}" in said.out
        # Draws of the prior: E|theta - theta_true|^2 = |mean - theta_true|^2 + tr(covariance) = 11.3
        assert row["oracle_mse"] == pytest.approx(11.3, abs=2.5)
    assert list(file.parent.iterdir()) == [file]
    kept = {path.name for path in (tmp_path / "reproduction" / "gnk-default").iterdir()}
    assert {"seed-100.json", "seed-100.npz", "seed-101.json", "seed-101.npz"} <= kept


def test_reproduce_keeps_the_other_repeats_where_one_fails(tmp_path, capsys):
    def oracle(task, clean_x, *, draws, seed):
        if seed == 8:
            raise ConvergenceError("The chains disagree.")
        return prior_draws(task, clean_x, draws=draws, seed=seed)

    file = tmp_path / "out.json"
    command = ["reproduce", "gnk", "--methods", "nsm-bayes-conj", "--seed", "7", "--repeats", "3", "--workers", "1"]
    command += [*SIZES, "--out", str(tmp_path), "--json", str(file)]
    assert main(command, effort=little_effort(oracle=oracle)) == 2
    assert capsys.readouterr().err == (
        "nsmbayes: 1 of 3 runs of gnk failed, all others are saved. The first, with the seed 8: The chains disagree.\n"
    )
    assert [row["seed"] for row in json.loads(file.read_text())["rows"]] == [7, 9]


def test_reproduce_passes_its_options_on(monkeypatch, capsys):
    seen = {}

    def experiment(experiment, store, **options):
        seen.update(options | {"experiment": experiment, "folder": store.folder})
        raise nsm.InputError("enough.")

    monkeypatch.setattr(reproduce, "run_experiment", experiment)
    command = ["reproduce", "gnk", "--methods", "nle, nsm-bayes", "--preset", "paper", "--seed", "4", "--repeats", "6"]
    sizes = ["--simulations", "70", "--observations", "8", "--contamination", "none", "--out", "there"]
    assert main([*command, *sizes, "--resume", "--workers", "3", "--dask", "local", "--quiet"]) == 2
    chosen = seen["experiment"]
    assert [method.method for method in chosen.methods] == ["nle", "nsm-bayes"]
    assert (chosen.preset, chosen.repeats, chosen.m) == ("paper", 6, 70)
    assert [(data.contamination, data.n) for data in chosen.data] == [("none", 8)]
    assert seen["folder"] == Path("there") / "gnk-paper"
    names = ("seed", "resume", "workers", "dask", "progress")
    assert [seen[name] for name in names] == [4, True, 3, "local", False]


def test_reproduce_all_are_those_of_the_paper(monkeypatch, tmp_path, capsys):
    names, row = [], a_row(covered=True, beta=1.0)

    def experiment(experiment, store, **_):
        names.append(experiment.name)
        return iter([StoredRepeat(0, (row,), (), {})])

    monkeypatch.setattr(reproduce, "run_experiment", experiment)
    monkeypatch.setattr(reproduce, "render", lambda result, **_: [result.store.folder / "tables.md"])
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "all", "--json", "all.json", "--quiet"]) == 0
    assert names == ["gnk", "sir", "sir-heavy", "radio"]
    documents = json.loads((tmp_path / "all.json").read_text())["experiments"]
    assert [document["task"] for document in documents] == ["gnk", "sir", "sir", "radio"]
