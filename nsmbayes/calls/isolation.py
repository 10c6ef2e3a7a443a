"""Simulation in separate processes, which may hang or die."""

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

_ATTEMPTS = 3  # deaths of a process after which its row fails; fewer may be due to kills from outside
_STARTS = 10  # consecutive processes that may end before they simulate
_START = 120.0  # seconds that a process may take to start and import modules
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Child:
    """One process that simulates, and methods to watch it."""

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
                start_new_session=True,  # Ctrl-C only reaches the parent, and a kill reaches all that the child started
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
        """Send work; the simulator is sent only if it has changed."""
        self._connection.send((None if payload == self._payload else payload, work, singly))
        self._payload = payload

    def receive(self, timeout: float | None) -> list[Row]:
        """Rows, as soon as some are ready; raise `TimeoutError` if a call takes too long, `EOFError` if it has died."""
        while not self._connection.poll(None if timeout is None else _until(*self.call(), timeout)):
            call, started = self.call()
            if timeout is not None and call.size and time.monotonic() - started > timeout:
                raise TimeoutError
        received = self._connection.recv()
        if isinstance(received, Exception):
            raise received
        return received

    def call(self) -> tuple[Call, float]:
        """The current call and its start time; a call of size 0 if there is none."""
        first, count, started = CLOCK.unpack_from(self._clock)
        return Call(first, count), started

    def kill(self) -> int:
        """Kill the process and its children, and return its exit status; threads waiting for it get an `EOFError`."""
        if self._process.returncode is None:  # its process id has not been reused
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def end(self) -> int:
        """Kill the process if it still runs, release its resources, and return its exit status."""
        status = self.kill()
        self._connection.close()
        self._clock.close()
        return status


def _until(call: Call, started: float, timeout: float) -> float:
    """Seconds to wait before checking the call again."""
    return min(1.0, timeout) if not call.size else max(0.001, started + timeout - time.monotonic() + 0.001)


class Crew:
    """A pool of processes that simulate, idle and busy ones."""

    def __init__(self):
        self._idle: list[Child] = []
        self._busy: list[Child] = []
        self._lock, self._ended = threading.Lock(), False

    def take(self) -> Child:
        """A process for some work; a new one if no process is idle."""
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
        """Return a process after its work is done."""
        with self._lock:
            self._busy.remove(child)
            self._idle.append(child)

    def drop(self, child: Child) -> int:
        """End a busy process and return its exit status."""
        with self._lock:
            self._busy.remove(child)
        return child.end()

    def end_idle(self) -> None:
        """End the idle processes."""
        with self._lock:
            ending, self._idle = self._idle, []
        for child in ending:
            child.end()

    def end(self) -> None:
        """End all processes, also busy ones: threads waiting for them get an error."""
        with self._lock:
            self._ended = True
            busy = list(self._busy)
        for child in busy:
            child.kill()
        self.end_idle()

    def _require_running(self) -> None:
        if self._ended:
            raise SimulationError("The campaign has ended.")


_own = Crew()  # the default crew of this process
atexit.register(_own.end)


def end_idle() -> None:
    """End the idle processes of the default crew."""
    _own.end_idle()


def evaluate_isolated(payload: bytes, work: Work, timeout: float | None, crew: Crew = _own) -> Outcome:
    """Simulate the rows of `work` in a process of `crew`; `payload` is the pickled simulator.

    A row fails if it takes more than `timeout` seconds or kills its process three times; the other rows are still
    simulated. If this happens to a call of several rows, they are simulated one by one.
    """
    done: list[Row] = []
    failed: dict[int, Row] = {}
    singly: set[int] = set()
    deaths: Counter[int] = Counter()
    without_work = 0  # consecutive processes that ended before they simulated
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
    """The simulator as bytes for another process, including functions defined in a script or a notebook."""
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
