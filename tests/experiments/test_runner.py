"""A run that was killed continues where it stopped, and where its repeats are computed changes nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
from support.effort import little_effort
from support.processes import die, dull_repeats, is_running

import nsmbayes as nsm
from nsmbayes.errors import FailedRepeatsError
from nsmbayes.experiments import DataSpec, Experiment, MethodSpec, Store, run
from nsmbayes.experiments.executors import in_processes
from nsmbayes.experiments.method_cache import MethodCache
from nsmbayes.experiments.repeat import run_group

ONE_LEVEL = {"noise_levels": (0.0,)}  # quick to compile
TINY = Experiment(
    "tiny",
    "",
    "gnk",
    (
        MethodSpec("nsm-bayes-conj", options=ONE_LEVEL),
        MethodSpec("nsm-bayes-conj", "mad", ONE_LEVEL | {"scatter": "mad"}),
        MethodSpec("nsm-bayes-conj", "half", ONE_LEVEL, m=500),
    ),
    (DataSpec(n=20), DataSpec("none", n=20)),
    m=1000,
    repeats=3,
    repeats_per_network=2,
    draws=20,
)
QUICK = little_effort(max_epochs=1)


def run_tiny(store, *, experiment=TINY, effort=QUICK, **how):
    """The repeats with the seeds 7, 8 and 9, in this process."""
    return run(experiment, store, seed=7, effort=effort, progress=False, **({"workers": 1} | how))


def numbers(repeat):
    """The rows without their times."""
    timed = ("train_s", "infer_s", "compiled")
    return [{name: value for name, value in asdict(row).items() if name not in timed} for row in repeat.rows]


def test_networks_are_shared_by_data_and_by_methods():
    cache = MethodCache(TINY, 7, effort=QUICK)
    x = [data.observe(cache.task, seed).x for data, seed in zip(TINY.data, (7, 8), strict=True)]
    usual, mad, half = TINY.methods
    first, seconds = cache.trained(usual, TINY.data[0], x[0])
    assert cache.trained(usual, TINY.data[1], x[1]).method is first
    shared = cache.trained(mad, TINY.data[0], x[0])
    assert shared.method is not first
    assert shared.method.network is first.network
    assert shared.seconds == seconds
    assert (first.simulations_used, shared.method.simulations_used) == (1000, 1000)
    other = cache.trained(half, TINY.data[0], x[0]).method
    assert other.network is not first.network
    assert other.simulations_used == 500


@pytest.mark.slow
def test_repeats_that_share_a_network():
    first, second = run_group(TINY, 7, [7, 8], effort=QUICK)
    assert [row.method for row in first.rows] == ["nsm-bayes-conj", "mad", "half"] * 2
    assert [row.contamination for row in first.rows] == ["shift"] * 3 + ["none"] * 3
    assert {row.repeat for row in second.rows} == {1}
    assert first.arrays["0:mad"].shape == (20, 4)
    np.testing.assert_array_equal(first.arrays["0:clean"], first.arrays["1:x"])
    assert first.rows[0].mean != first.rows[1].mean != first.rows[2].mean
    assert {row.train_s for row in first.rows} == {row.train_s for row in second.rows}  # trained once
    assert len({row.train_s for row in first.rows}) == 2  # with 1000 and with 500 simulations


class KilledStore(Store):
    """Ctrl-C while the second repeat is saved."""

    def save(self, result):
        if result.seed > 7:
            raise KeyboardInterrupt
        return super().save(result)


@pytest.mark.slow
def test_a_killed_run_continues_where_it_stopped(tmp_path):
    whole = list(run_tiny(Store(tmp_path / "whole", TINY)))
    assert [one.seed for one in whole] == [7, 8, 9]
    store = KilledStore(tmp_path / "cut", TINY)
    with pytest.raises(KeyboardInterrupt):
        list(run_tiny(store))
    assert [path.name for path in sorted(store.folder.iterdir())] == ["seed-7.json", "seed-7.npz"]
    ran = []

    def group(experiment, seed, seeds, **how):
        ran.append(seeds)
        return run_group(experiment, seed, seeds, **how)

    rest = list(run_tiny(Store(tmp_path / "cut", TINY), resume=True, run_group=group))
    assert ran == [[8], [9]]
    assert list(map(numbers, rest)) == list(map(numbers, whole))
    for seed in (7, 8, 9):
        arrays = [Store(tmp_path / name, TINY).arrays(seed) for name in ("whole", "cut")]
        assert arrays[0].keys() == arrays[1].keys()
        for name, array in arrays[0].items():
            np.testing.assert_array_equal(array, arrays[1][name])


def test_a_repeat_whose_training_was_interrupted_is_not_stored(interrupted_training, tmp_path):
    store = Store(tmp_path, TINY)
    with interrupted_training(after=2), pytest.raises(KeyboardInterrupt):
        list(run_tiny(store, effort=little_effort(max_epochs=5)))
    assert not store.folder.exists()


@pytest.mark.slow
def test_what_is_saved_is_what_is_loaded(tmp_path):
    store = Store(tmp_path, TINY)
    for repeat in run_tiny(store):
        assert store.load(repeat.seed) == repeat
        assert {trace.method for trace in repeat.traces} == {"nsm-bayes-conj", "mad", "half"}


def test_other_settings_are_not_mixed(tmp_path):
    list(run_tiny(Store(tmp_path, TINY), run_group=dull_repeats))
    other = replace(TINY, m=2000, data=(DataSpec(n=20),))
    with pytest.raises(nsm.InputError, match="was run with other simulations, data"):
        next(run_tiny(Store(tmp_path, other), experiment=other, resume=True))


def test_another_version_is_not_mixed(tmp_path, monkeypatch):
    store = Store(tmp_path, TINY)
    list(run_tiny(store, run_group=dull_repeats))
    monkeypatch.setattr("nsmbayes.experiments.store.__version__", "9.9.9")
    with pytest.raises(nsm.InputError, match="was run with other version"):
        next(run_tiny(store, resume=True))


DAMAGE = {
    "empty": ("json", lambda _: b""),
    "cut": ("json", lambda whole: whole[:-20]),
    "a list": ("json", lambda _: b"[1]"),
    "null": ("json", lambda _: b"null"),
    "edited": ("json", lambda whole: whole.replace(b'"cores": ', b'"cores": 1')),
    "no checksum": ("json", lambda whole: whole.replace(b'"sha256"', b'"sha"')),
    "other rows": ("json", lambda whole: whole.replace(b'"rows": []', b'"rows": [{"colour": 1}]')),
    "arrays cut": ("npz", lambda whole: whole[:-20]),
    "arrays changed": ("npz", lambda whole: whole[:50] + b"x" + whole[51:]),
    "arrays lost": ("npz", None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_repeat_is_run_again_with_a_note(name, tmp_path):
    store = Store(tmp_path, TINY)
    list(run_tiny(store, run_group=dull_repeats))
    ending, damage = DAMAGE[name]
    path = store.folder / f"seed-8.{ending}"
    path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    ran = []

    def group(experiment, seed, seeds, **how):
        ran.append(seeds)
        return dull_repeats(experiment, seed, seeds, **how)

    with pytest.warns(UserWarning, match=rf"seed-8\.{ending} is damaged.*seed 8 is run again"):
        again = list(run_tiny(store, resume=True, run_group=group))
    assert sorted(one.seed for one in again) == [7, 8, 9]
    assert ran == [[8]]
    assert store.load(8) is not None


def test_a_killed_worker_is_replaced(tmp_path, monkeypatch):
    """Then there is an end to it, and what was finished is not lost."""
    monkeypatch.setattr("nsmbayes.experiments.executors._ATTEMPTS", 2)
    results, done = in_processes(partial(die, tmp_path), [1, 9], workers=1), []

    def collect():
        for one in results:
            done.append(one)

    with pytest.raises(FailedRepeatsError, match=r"killed 2 times, 1 of 2 .*--resume and fewer --workers"):
        collect()
    assert done == [1]


_CLUSTER = """
import json, urllib.error, urllib.request
import psutil
from nsmbayes.experiments.executors import local_cluster

if __name__ == "__main__":
    with local_cluster(1) as cluster:
        this = psutil.Process()
        found = [
            connection.laddr.ip
            for process in (this, *this.children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == "LISTEN"
        ]
        port, status = cluster.scheduler_info["services"].get("dashboard"), 404
        if port:
            try:
                status = urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10).status
            except urllib.error.HTTPError as error:
                status = error.code
    print(json.dumps([found, status]))
"""


def test_a_local_cluster_cannot_be_reached_from_elsewhere(tmp_path):
    (tmp_path / "cluster.py").write_text(_CLUSTER)  # workers import it
    command = [sys.executable, str(tmp_path / "cluster.py")]
    addresses, status = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert len(addresses) > 1
    assert set(addresses) == {"127.0.0.1"}
    assert status == 404


@pytest.mark.slow
@pytest.mark.parametrize("where", [{"workers": 2}, {"workers": 2, "dask": "local"}], ids=["processes", "dask"])
def test_repeats_elsewhere(where, tmp_path):
    """Real processes and a real cluster, each with work that takes no time."""
    store = Store(tmp_path, TINY)
    repeats = list(run_tiny(store, effort=None, run_group=dull_repeats, **where))
    assert sorted(one.seed for one in repeats) == [7, 8, 9]
    assert all(store.load(seed) for seed in (7, 8, 9))
    processes = {int(store.arrays(seed)["0:process"]) for seed in (7, 8, 9)}
    assert os.getpid() not in processes


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs /proc and core affinity")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(end):
    """A worker left behind would go on to use a core for hours, and one that is waited for does so after Ctrl-C."""
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
    script += "from support import processes; processes.wait_in_two_processes()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, **pipes) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(is_running(worker) for worker in workers)
        parent.send_signal(end)
        try:
            parent.wait(30)
        finally:
            parent.kill()
    deadline = time.monotonic() + 30
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
