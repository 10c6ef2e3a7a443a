"""What other processes are given to do in the tests of the runner; they import it by name."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from nsmbayes.experiments.executors import in_processes
from nsmbayes.experiments.repeat import RepeatResult


def dull_repeats(experiment, seed, seeds, *, effort, progress):
    """Stands in for the repeats of an experiment, in another process: tells which one it was."""
    del experiment, seed, effort, progress
    return [RepeatResult(own, [], [], {"0:process": np.array(os.getpid())}) for own in seeds]


def die(folder, deaths):
    """Kill the process at the first attempts, as many as `deaths`; then return it."""
    attempts = len(list(folder.glob(f"{deaths}-*")))
    if attempts < deaths:
        (folder / f"{deaths}-{attempts}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return deaths


def _wait(seconds):
    print(os.getpid(), flush=True)
    time.sleep(seconds)
    return []


def wait_in_two_processes():
    """Have two workers do nothing for a long time."""
    next(in_processes(_wait, [600, 600], 2))


def what_it_knows(posterior):
    """Some of what a posterior says, in whatever process."""
    return posterior.summary(), posterior.log_prob(posterior.mean).tolist(), posterior.sample((2,), seed=0).tolist()


def ends(process, seconds=10):
    """Whether a process that was killed ends: on a busy machine that takes a moment."""
    limit = time.monotonic() + seconds
    while is_running(process):
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def is_running(process):
    """Whether a process is running: there, and not a zombie."""
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
