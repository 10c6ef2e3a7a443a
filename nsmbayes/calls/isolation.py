"""Simulation in processes of their own, which may hang or die."""

import atexit
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection

import cloudpickle

from nsmbayes.calls.child import CLOCK
from nsmbayes.calls.work import Call, Caller, Outcome, Row, RowStatus, Work, gathered
from nsmbayes.errors import InputError, SimulationError

_ATTEMPTS = 3  # deaths that a row may see before it is blamed: a process can also be killed from outside
_STARTS = 10  # processes in a row that may end before they simulate
_START = 120.0  # seconds that a process may take to import what it needs
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Child:
    """One process that simulates, and the means to watch it."""

    def __init__(self):
        if os.name != "posix":
            raise InputError("`executor` and `timeout`: processes of their own need Linux or macOS. Leave both out.")
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as file:
            file.write(bytes(CLOCK.size))
            file.flush()
            self._clock = mmap.mmap(file.fileno(), CLOCK.size)
            numbers = (str(theirs.fileno()), str(os.getpid()), str(file.fileno()))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nsmbayes.calls.child", *numbers],
                pass_fds=(theirs.fileno(), file.fileno()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the campaign, and a kill reaches what the simulator started
                env=dict.fromkeys(_ONE_THREAD, "1") | os.environ,
            )
        theirs.close()
        self._connection, self._payload = Connection(ours.detach()), None
        if not self._ready():
            raise ConnectionError(f"it did not start; {_told(self.end())}")

    def _ready(self) -> bool:
        try:
            self._connection.send(sys.path)
            return self._connection.poll(_START) and self._connection.recv() == "ready"
        except (EOFError, OSError):
            return False

    def send(self, payload: bytes, work: Work, singly: frozenset[int]) -> None:
        """Hand work over; the simulator only if it is another than before."""
        self._connection.send((None if payload == self._payload else payload, work, singly))
        self._payload = payload

    def receive(self, timeout: float | None) -> list[Row]:
        """Rows, as soon as there are some; raise `TimeoutError` if the call that runs takes too long, or `EOFError`."""
        while not self._connection.poll(None if timeout is None else _until(*self.call(), timeout)):
            call, started = self.call()
            if timeout is not None and call.size and time.monotonic() - started > timeout:
                raise TimeoutError
        received = self._connection.recv()
        if isinstance(received, Exception):
            raise received
        return received

    def call(self) -> tuple[Call, float]:
        """The call that runs now, and since when; a call of no rows if none does."""
        first, count, started = CLOCK.unpack_from(self._clock)
        return Call(first, count), started

    def kill(self) -> int:
        """Kill the process and all that it started; whoever waits for it gets an `EOFError`. Its exit status."""
        if self._process.returncode is None:  # its number is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def end(self) -> int:
        """Kill the process, if it has not ended, and let go of it; its exit status."""
        status = self.kill()
        self._connection.close()
        self._clock.close()
        return status


def _until(call: Call, started: float, timeout: float) -> float:
    """Seconds until it is time to look again."""
    return min(1.0, timeout) if not call.size else max(0.001, started + timeout - time.monotonic() + 0.001)


class Crew:
    """Processes that simulate: those that wait for work and those that are busy."""

    def __init__(self):
        self._idle: list[Child] = []
        self._busy: list[Child] = []
        self._lock, self._ended = threading.Lock(), False

    def take(self) -> Child:
        """A process for some work; a new one if none waits."""
        with self._lock:
            self._require_running()
            child = self._idle.pop() if self._idle else None
        child = Child() if child is None else child
        with self._lock:
            self._busy.append(child)
            ended = self._ended
        if ended:
            self.drop(child)
            self._require_running()
        return child

    def give_back(self, child: Child) -> None:
        """The work is done."""
        with self._lock:
            self._busy.remove(child)
            self._idle.append(child)

    def drop(self, child: Child) -> int:
        """End a process; its exit status."""
        with self._lock:
            self._busy.remove(child)
        return child.end()

    def end_idle(self) -> None:
        """End the processes that wait for work."""
        with self._lock:
            ending, self._idle = self._idle, []
        for child in ending:
            child.end()

    def end(self) -> None:
        """End all processes, also those that are busy: the threads that wait for them get an error."""
        with self._lock:
            self._ended = True
            busy = list(self._busy)
        for child in busy:
            child.kill()
        self.end_idle()

    def _require_running(self) -> None:
        if self._ended:
            raise SimulationError("The campaign has ended.")


_own = Crew()  # of this process, wherever it works
atexit.register(_own.end)


def end_idle() -> None:
    """End the processes of this process that wait for work."""
    _own.end_idle()


def evaluate_isolated(payload: bytes, work: Work, timeout: float | None, crew: Crew = _own) -> Outcome:
    """Simulate the rows of `work` in a process of `crew`; `payload` is the pickled simulator.

    A row that takes more than `timeout` seconds, or that kills its process three times, has failed; the others are
    simulated none the less. A call of several rows that does so is made again row by row.
    """
    done: list[Row] = []
    failed: dict[int, Row] = {}
    singly: set[int] = set()
    deaths: Counter[int] = Counter()
    without_work = 0  # processes in a row that ended before they simulated
    while (at := work.start + len(done)) < work.stop:
        if at in failed:
            done.append(failed[at])
            continue
        stop = min((row for row in failed if row > at), default=work.stop)
        if without_work >= _STARTS:
            raise SimulationError("Processes for simulations end before they simulate. Is there enough memory?")
        try:
            child = crew.take()
        except ConnectionError:
            without_work += 1
            continue
        try:
            child.send(payload, work._replace(start=at, stop=stop), frozenset(singly))
            while work.start + len(done) < stop:
                done += child.receive(timeout)
                without_work = 0
        except (TimeoutError, EOFError, ConnectionError) as error:
            call, _ = child.call()
            status = crew.drop(child)
            if isinstance(error, TimeoutError):
                blamed, row = True, (None, RowStatus.TIMED_OUT, f"took more than {timeout:g} s")
            else:
                deaths[call.first] += 1
                blamed, row = deaths[call.first] >= _ATTEMPTS, (None, RowStatus.DIED, _told(status))
            if call.size == 0:
                without_work += 1
            elif blamed and call.size > 1:
                singly.add(call.first)
                deaths.pop(call.first, None)
            elif blamed:
                failed[call.first] = row
        except BaseException:
            crew.drop(child)
            raise
        else:
            crew.give_back(child)
    return gathered(work.start, done)


def pickled(simulator: Caller) -> bytes:
    """The simulator for another process; functions of a script or a notebook travel with it."""
    try:
        return cloudpickle.dumps(simulator)
    except Exception as error:
        raise InputError(
            f"`simulator` cannot be sent to another process ({error}). Let it open what it needs when it is called, or "
            "leave `executor` and `timeout` out."
        ) from error


def _told(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}"
    return f"its process ended by signal {-status} ({signal.Signals(-status).name})"
