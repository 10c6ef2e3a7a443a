"""A row depends on the seed and its number, whoever simulates it; and what fails, fails alone."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from support.functions import bad, noisy, noisy_batch
from support.processes import ends
from support.simulators import PRIOR, all_rows, bad_theta, command, works

import nsmbayes as nsm
from nsmbayes.calls import RowStatus
from nsmbayes.calls.executors import outcomes
from nsmbayes.simulators import draw_theta

M = 300
KINDS = ("here", "pool", "futures", "threads", "dask", "address")


@pytest.fixture(scope="module")
def callers(program):
    def jax_one(key, theta):
        return theta + jnp.exp(jax.random.normal(key, (2,)))

    simulators = {
        "one": nsm.NumpySimulator(noisy),
        "batch": nsm.BatchSimulator(noisy_batch, size=64),
        "jax": nsm.JaxSimulator(jax_one),
        "program": command(program),
    }
    return {name: simulator.caller() for name, simulator in simulators.items()}


@pytest.fixture(scope="module")
def undisturbed(callers):
    """The rows by one piece of work in this process; fewer of the program, which takes a while to start."""
    return {name: all_rows(caller, _rows(name), _rows(name), None) for name, caller in callers.items()}


def _rows(name):
    return 24 if name == "program" else M


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in ("one", "batch") for kind in KINDS),
        *(("jax", kind) for kind in ("here", "pool", "threads")),  # JAX takes seconds to import elsewhere
        *(("program", kind) for kind in ("pool", "dask")),
    ],
)
def test_a_row_is_the_same_whoever_simulates_it(name, kind, callers, undisturbed, executors):
    batch = 1 + 7 * (KINDS.index(kind) + 1)
    x, status, reasons = all_rows(callers[name], _rows(name), batch, executors[kind])
    assert np.array_equal(x, undisturbed[name][0], equal_nan=True)
    assert np.array_equal(status, undisturbed[name][1])
    assert reasons == undisturbed[name][2]


def test_rows_and_seeds_differ(callers, undisturbed):
    theta = draw_theta(PRIOR, 0, 0, M)
    noise = undisturbed["one"][0] - theta
    assert len(np.unique(noise)) == noise.size
    assert len(np.unique(undisturbed["batch"][0] - theta)) == noise.size
    # correlation of neighbouring rows: 4.5 standard errors are seen by chance with probability 7e-6
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 4.5 / np.sqrt(M)
    assert not np.isin(theta, draw_theta(PRIOR, 1, 0, M)).any()
    assert noise.std() == pytest.approx(1, abs=4.5 / np.sqrt(2 * noise.size))


@pytest.mark.parametrize(
    "prior", [PRIOR, dist.Uniform(jnp.zeros(2), jnp.ones(2)).to_event(1)], ids=["gaussian", "uniform"]
)
def test_theta_is_the_same_in_any_slice(prior):
    whole = draw_theta(prior, 3, 0, 3000)
    assert whole.dtype == np.float64
    for start, stop in ((0, 1), (1000, 1030), (1023, 2049), (2999, 3000)):
        assert np.array_equal(draw_theta(prior, 3, start, stop), whole[start:stop])


@pytest.mark.parametrize("kind", ["here", "pool", "dask"])
def test_every_kind_of_failure_is_found_and_costs_no_other_row(kind, executors):
    theta = bad_theta()
    x, status, reasons = all_rows(nsm.NumpySimulator(bad).caller(), 12, 6, executors[kind], 3.0, theta)
    expected = np.full(12, RowStatus.VALID)
    expected[[3, 5, 7, 9]] = [RowStatus.RAISED, RowStatus.NOT_FINITE, RowStatus.TIMED_OUT, RowStatus.DIED]
    assert status.tolist() == expected.tolist()
    assert reasons == {
        3: "ValueError: no such star",
        5: "returned [1.0, nan]",
        7: "took more than 3 s",
        9: "its process ended by signal 6 (SIGABRT)",
    }
    good = nsm.NumpySimulator(lambda rng, theta: theta + rng.standard_normal(2)).caller()
    valid = expected == RowStatus.VALID
    assert np.array_equal(x[valid], all_rows(good, 12, 12, None, None, theta)[0][valid])


def test_a_batch_that_fails_is_simulated_row_by_row():
    def picky(rng, theta):
        if (theta[:, 0] == 1).any():
            raise ValueError("one of them")
        if (theta[:, 0] == 4).any():
            os.abort()
        return theta + rng.standard_normal(theta.shape)

    caller, theta = nsm.BatchSimulator(picky, size=4).caller(), bad_theta()
    _, status, reasons = all_rows(caller, 12, 12, 1, None, theta)
    assert np.flatnonzero(status != RowStatus.VALID).tolist() == [3, 9]
    assert reasons[3] == "ValueError: one of them"
    _, status, _ = all_rows(caller, 8, 5, None, None, theta)
    assert np.flatnonzero(status != RowStatus.VALID).tolist() == [3]


def test_a_worker_that_dies_on_dask_costs_nothing(client):
    """A simulator that kills its worker whenever it runs in one: Dask gives up, and isolation finds the row."""

    def deadly(rng, theta):
        if theta[0] == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return theta

    _, status, reasons = all_rows(nsm.NumpySimulator(deadly).caller(), 12, 4, client, None, bad_theta())
    assert np.flatnonzero(status != RowStatus.VALID).tolist() == [9]
    assert reasons == {9: "its process ended by signal 9 (SIGKILL)"}


def test_an_executor_of_the_users_that_breaks_says_what_to_do():
    import multiprocessing

    def deadly(rng, theta):
        os.kill(os.getpid(), signal.SIGKILL)

    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(nsm.SimulationError, match="pass a number of processes instead"),
    ):
        all_rows(nsm.NumpySimulator(deadly).caller(), 2, 1, pool)


def test_a_program_that_fails_tells_why(program):
    theta = np.array([[0.0, 1.0], [3.0, 1.0]])
    _, status, reasons = all_rows(command(program).caller(), 2, 2, None, None, theta)
    assert status.tolist() == [RowStatus.VALID, RowStatus.RAISED]
    assert reasons == {1: "RuntimeError: the program ended with status 4: a is too large"}


def test_a_program_that_hangs_ends_with_its_timeout(tmp_path):
    script = tmp_path / "hang.sh"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    script.chmod(0o755)
    _, status, _ = all_rows(nsm.CommandSimulator([str(script)]).caller(), 1, 1, None, 3.0)
    assert status.tolist() == [RowStatus.TIMED_OUT]
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"command": "simulate {input}"}, "`command` must be a list"),
        ({"command": ["no-such-program"]}, "there is no program 'no-such-program'"),
        ({"command": ["echo", "{alpha}"]}, "only {theta\\[i\\]}, {seed}"),
        ({"command": ["echo"], "template": "{"}, "cannot be filled in"),
    ],
)
def test_a_command_that_cannot_run_is_refused(arguments, complaint):
    with pytest.raises(nsm.InputError, match=complaint):
        nsm.CommandSimulator(**arguments)


def test_who_stops_early_leaves_no_process_behind(tmp_path):
    """A campaign that is interrupted, or ends with an error, does not wait for a simulator that hangs."""

    def hanging(rng, theta):
        (tmp_path / f"{os.getpid()}.pid").touch()
        if theta[0] == 3:
            time.sleep(600)
        return theta

    caller = nsm.NumpySimulator(hanging).caller()
    made = outcomes(caller, works(caller, 12, 6, bad_theta()), 2, None)
    work, _ = next(made)
    assert work.start == 0
    while len(list(tmp_path.iterdir())) < 2:  # the other piece has begun, in another process
        time.sleep(0.05)
    made.close()
    assert all(ends(path.stem) for path in tmp_path.iterdir())


def test_rows_must_have_the_same_width():
    caller = nsm.NumpySimulator(lambda rng, theta: theta[: 1 + int(theta[0] == 1)]).caller()
    with pytest.raises(nsm.InputError, match="got 1 in row 0 and 2 in row 3"):
        all_rows(caller, 12, 12, None, None, bad_theta())


def test_executors_are_checked():
    with pytest.raises(nsm.InputError, match="`executor` must be None, a number"):
        outcomes(nsm.NumpySimulator(noisy).caller(), iter([]), 1.5, None)
    with pytest.raises(nsm.InputError, match="no Dask scheduler answers"):
        next(outcomes(nsm.NumpySimulator(noisy).caller(), iter([]), "nowhere", None))
    frame = sys._getframe()
    with pytest.raises(nsm.InputError, match="cannot be sent to another process"):
        all_rows(nsm.NumpySimulator(lambda rng, theta: frame).caller(), 2, 2, 1)


def test_processes_for_simulations_need_no_jax():
    code = "import sys, nsmbayes.calls.child; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
