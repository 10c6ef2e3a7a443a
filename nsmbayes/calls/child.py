"""A child process that simulates for another process, which continues if the child hangs or dies.

It is started as `python -m nsmbayes.calls.child`, with the number of a socket. It writes the start of each call into a
file that both processes map, and sends its results a few times a second.
"""

import contextlib
import mmap
import os
import struct
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from nsmbayes._internal.processes import end_with_parent
from nsmbayes.calls.work import calls, make
from nsmbayes.errors import InputError

CLOCK = struct.Struct("<qqd")
"""The current call, as first row and number of rows (0 if there is none), and its start time."""
_SEND_EVERY = 0.2  # seconds: at most this much work is lost with the process


def main() -> None:
    """Simulate the work that arrives, until the other side closes the connection."""
    connection = Connection(int(sys.argv[1]))
    end_with_parent(int(sys.argv[2]))
    with mmap.mmap(int(sys.argv[3]), CLOCK.size) as clock, contextlib.suppress(EOFError, ConnectionError):
        sys.path[:] = connection.recv()
        connection.send("ready")
        _serve(connection, clock)


def _serve(connection: Connection, clock: mmap.mmap) -> None:
    simulator: Any = None
    while True:
        payload, work, singly = connection.recv()
        if payload is not None:
            try:
                simulator = cloudpickle.loads(payload)
            except Exception as error:
                connection.send(InputError(f"`simulator` cannot be loaded in another process: {error!r}."))
                continue
        made, sent = [], time.monotonic()
        for call in calls(simulator, work, singly):
            now = time.monotonic()
            if now - sent > _SEND_EVERY:
                connection.send(made)
                made, sent = [], now
            CLOCK.pack_into(clock, 0, *call, now)
            made += make(simulator, work, call)
        CLOCK.pack_into(clock, 0, 0, 0, 0.0)
        connection.send(made)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)
    main()
