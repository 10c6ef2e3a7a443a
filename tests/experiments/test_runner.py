"""A run that was killed goes on where it stopped, and where its repeats are computed changes nothing."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from experiments.processes import dull_repeats, is_running

import nsmbayes as nsm
from nsmbayes.experiments import runner
from nsmbayes.experiments.description import Data, Entry, Experiment
from nsmbayes.experiments.repeat import run_group
from nsmbayes.experiments.store import Store

ONE_LEVEL = {"levels": (0.0,)}  # quick to compile
TINY = Experiment(
    "tiny",
    "",
    "gnk",
    (
        Entry("nsm-bayes-conj", options=ONE_LEVEL),
        Entry("nsm-bayes-conj", "mad", ONE_LEVEL | {"scatter": "mad"}),
        Entry("nsm-bayes-conj", "half", ONE_LEVEL, m=500),
    ),
    (Data(n=20), Data("none", n=20)),
    m=1000,
    repeats=3,
    share=2,
    draws=20,
)


@pytest.fixture
def quick(monkeypatch):
    """Networks that are hardly trained, and the prior in place of the exact posterior."""
    brief = nsm.TrainingSettings(max_epochs=1)
    train = nsm.NSMBayesConj.train
    trained = []

    def train_briefly(method, seed, *, progress):
        trained.append((seed, method.simulations_used))
        return train(method, seed, settings=brief, progress=progress)

    monkeypatch.setattr(nsm.NSMBayesConj, "train", train_briefly)
    monkeypatch.setattr(
        "nsmbayes.experiments.repeat.oracle_posterior",
        lambda task, x, *, draws, seed: task.prior.sample((draws,), seed),
    )
    return trained


def numbers(document):
    """The rows without their times."""
    timed = ("train_s", "infer_s", "compiled")
    return [{name: value for name, value in row.items() if name not in timed} for row in document["rows"]]


def test_networks_are_shared_by_repeats_and_by_methods(quick):
    first, second = run_group(TINY, 7, [7, 8])
    assert quick == [(7, 1000), (7, 500)]
    assert [row.method for row in first.rows] == ["nsm-bayes-conj", "mad", "half"] * 2
    assert [row.contamination for row in first.rows] == ["shift"] * 3 + ["none"] * 3
    assert {row.repeat for row in second.rows} == {1}
    assert first.arrays["0:mad"].shape == (20, 4)
    np.testing.assert_array_equal(first.arrays["0:clean"], first.arrays["1:x"])
    assert first.rows[0].mean != first.rows[1].mean != first.rows[2].mean


def test_a_killed_run_is_taken_up_where_it_stopped(quick, tmp_path, monkeypatch):
    whole = list(runner.run(TINY, Store(tmp_path / "whole", TINY), seed=7, workers=1, progress=False))
    assert [one["seed"] for one in whole] == [7, 8, 9]
    store, saved = Store(tmp_path / "cut", TINY), []

    def save(result):
        if saved:
            raise KeyboardInterrupt
        saved.append(result.seed)
        return Store.save(store, result)

    monkeypatch.setattr(store, "save", save)
    with pytest.raises(KeyboardInterrupt):
        list(runner.run(TINY, store, seed=7, workers=1, progress=False))
    assert [path.name for path in sorted(store.folder.iterdir())] == ["seed-7.json", "seed-7.npz"]
    ran = []
    monkeypatch.setattr(runner, "run_group", lambda *given, **how: ran.append(given[2]) or run_group(*given, **how))
    rest = list(runner.run(TINY, Store(tmp_path / "cut", TINY), seed=7, resume=True, workers=1, progress=False))
    assert ran == [[8], [9]]
    assert list(map(numbers, rest)) == list(map(numbers, whole))
    for seed in (7, 8, 9):
        arrays = [Store(tmp_path / run, TINY).arrays(seed) for run in ("whole", "cut")]
        assert arrays[0].keys() == arrays[1].keys()
        for name, array in arrays[0].items():
            np.testing.assert_array_equal(array, arrays[1][name])


def test_other_settings_are_not_mixed(quick, tmp_path):
    list(runner.run(TINY, Store(tmp_path, TINY), seed=7, workers=1, progress=False))
    other = Experiment(**(vars(TINY) | {"m": 2000, "data": (Data(n=20),)}))
    with pytest.raises(nsm.InputError, match="was run with other simulations, data"):
        next(runner.run(other, Store(tmp_path, other), seed=7, resume=True, workers=1, progress=False))


def test_a_damaged_repeat_is_named(tmp_path):
    store = Store(tmp_path, TINY)
    store.folder.mkdir(parents=True)
    for content in ("", "{", "[1]", "null"):
        (store.folder / "seed-8.json").write_text(content)
        with pytest.raises(nsm.InputError, match=r"seed-8\.json is damaged"):
            next(runner.run(TINY, store, seed=7, resume=True, workers=1, progress=False))


@pytest.mark.parametrize("where", [{"workers": 2}, {"workers": 2, "dask": "local"}], ids=["processes", "dask"])
def test_repeats_elsewhere(where, tmp_path, monkeypatch):
    """Real processes and a real cluster, each with work that takes no time."""
    monkeypatch.setattr(runner, "_attempt", dull_repeats)
    repeats = list(runner.run(TINY, Store(tmp_path, TINY), seed=7, progress=False, **where))
    assert sorted(one["seed"] for one in repeats) == [7, 8, 9]
    assert all(Store(tmp_path, TINY).load(seed) for seed in (7, 8, 9))
    processes = {int(Store(tmp_path, TINY).arrays(seed)["0:process"]) for seed in (7, 8, 9)}
    assert os.getpid() not in processes


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs /proc and core affinity")
def test_workers_end_with_a_killed_parent(tmp_path):
    """A worker left behind would go on to use a core for hours."""
    script = "from experiments import processes; processes.wait_in_two_processes()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(is_running(worker) for worker in workers)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
