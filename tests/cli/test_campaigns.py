"""From a Python function to a posterior on the command line."""

import json

import numpy as np
import pytest
from support.effort import little_effort

import nsmbayes as nsm
from nsmbayes.cli import main

MODULE = """
import numpy as np

def simulator(rng, theta):
    if theta[0] > 1.8:
        raise ValueError("out of range")
    return theta[0] + np.exp(theta[1]) * rng.standard_normal(1)

def one_argument(theta):
    return theta
"""
PRIOR = {"distribution": "Gaussian", "mean": [0, 0], "covariance": [1, 0.25], "names": ["centre", "log_width"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What a user starts with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "instrument_of_a_test.py").write_text(MODULE)
    (tmp_path / "prior.json").write_text(json.dumps(PRIOR))
    return tmp_path


def simulate(*more, m=400):
    command = ["simulate", "instrument_of_a_test:simulator", "--prior", "prior.json", "-m", str(m)]
    return main([*command, "--out", "c.zarr", "--quiet", *more])


def test_simulate_train_infer(folder, capsys, monkeypatch):
    monkeypatch.setattr("nsmbayes.cli.infer.write_report", lambda *_, **__: None)  # takes longer than all else
    assert simulate("--workers", "2", "--batch", "50") == 0
    said = capsys.readouterr().out
    failed = len(nsm.Campaign("c.zarr").failures().rows)
    assert said.startswith("complete: 400 of 400 rows (100.0%)")
    assert f"{failed} times: ValueError: out of range" in said
    assert "failed rows have a large centre" in said
    assert (folder / "c-failures.png").is_file()
    assert main(["simulate", "--status", "c.zarr", "--json", "status.json"]) == 0
    assert capsys.readouterr().out == said
    status = json.loads((folder / "status.json").read_text())
    assert (status["rows"], status["done"], sum(status["failed"].values())) == (400, 400, failed)
    command = ["train", "c.zarr", "--out", "model", "--method", "nsm-bayes-conj", "--quiet"]
    assert main(command, effort=little_effort()) == 2
    assert "pass drop_failures=True" in capsys.readouterr().err
    assert main([*command, "--drop-failures", "--json", "training.json"], effort=little_effort()) == 0
    trained = json.loads((folder / "training.json").read_text())
    assert (trained["method"], trained["model"], trained["epochs"]) == ("nsm-bayes-conj", "model", 2)
    assert trained["dropped_simulations"] == failed / 400
    assert np.isfinite(trained["best_validation_loss"])
    assert f"{failed / 400:.2%} of the simulations failed" in capsys.readouterr().out
    assert main([*command, "--drop-failures"], effort=little_effort()) == 2
    assert "exists already" in capsys.readouterr().err
    np.savetxt("data.csv", np.random.default_rng(0).standard_normal(30))
    assert main(["infer", "model", "data.csv", "--out", "result", "--beta", "1", "--json", "posterior.json"]) == 0
    assert (folder / "posterior.json").read_text() == (folder / "result" / "posterior.json").read_text()
    said = capsys.readouterr().out
    assert f"{failed / 400:.2%} of the simulations failed and were dropped" in said
    assert "\ncentre " in said
    assert json.loads((folder / "result" / "posterior.json").read_text())["dropped_simulations"] == failed / 400


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["simulate"], "`module:simulator` is missing"),
        (["simulate", "x:y", "--prior", "prior.json", "--out", "c.zarr"], "`-m` is missing"),
        (["simulate", "--status", "no.zarr"], "is not a campaign"),
        (["train", "no.zarr", "--out", "model"], "is not a campaign"),
        (["train", "no.zarr", "--out", "model", "--method", "npe"], "`method` must be one of"),
    ],
)
def test_what_is_wrong_is_one_line(folder, capsys, command, complaint):
    assert main(command) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("simulator", "complaint"),
    [
        ("instrument_of_a_test", "must be module:name"),
        ("no_such_module_here:f", "there is no module 'no_such_module_here'"),
        ("instrument_of_a_test:no", "has no 'no'"),
        ("instrument_of_a_test:one_argument", "`rng` and `theta`"),
    ],
)
def test_a_simulator_is_named_by_module_and_name(folder, capsys, simulator, complaint):
    assert main(["simulate", simulator, "--prior", "prior.json", "-m", "10", "--out", "c.zarr"]) == 2
    assert complaint in capsys.readouterr().err


def test_options_of_the_prior_and_the_workers_are_checked(folder, capsys):
    assert simulate("--workers", "2", "--dask", "tcp://nowhere:1") == 2
    assert "exclude each other" in capsys.readouterr().err
    (folder / "prior.json").write_text("{")
    assert simulate() == 2
    assert "cannot be read as JSON" in capsys.readouterr().err
    uniform = {"distribution": "Uniform", "low": [0, 0], "high": [1, 1]}
    (folder / "prior.json").write_text(json.dumps(uniform))
    assert simulate(m=20) == 0
    assert main(["train", "c.zarr", "--method", "nsm-bayes-conj", "--out", "model"]) == 2
    assert "`prior` must be Gaussian" in capsys.readouterr().err


def test_too_many_failures_are_one_message(folder, capsys):
    assert simulate("--max-failures", "0.001") == 2
    assert "simulations failed, and `max_failures` allows 0.001 of 400" in capsys.readouterr().err
