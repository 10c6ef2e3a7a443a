"""Ctrl-C ends a command within two seconds, also while a compiled program runs, which Python cannot interrupt."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The exit code of a command that was interrupted, as shells have it."""
_GRACE = 1.5  # seconds in which a command may end by itself


@contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Within, the process ends at most `_GRACE` seconds after Ctrl-C, or at once after a second one.

    Python raises KeyboardInterrupt only between two steps of its own, and a compiled program is one step. The signal
    itself arrives at any time: it writes a byte, which a thread waits for. What is written to disk is moved to its
    place whole, so that an end at any moment leaves nothing half-done.
    """
    if threading.current_thread() is not threading.main_thread():  # signals do not come here
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    before, hook = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False), sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else hook(lost)  # JAX may lose one
    watcher = threading.Thread(target=_watch, args=(receiver,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sys.unraisablehook = hook
        sender.close()
        watcher.join()
        receiver.close()


def _watch(receiver: socket.socket) -> None:
    while came := receiver.recv(1):
        if came[0] != signal.SIGINT:
            continue
        receiver.settimeout(_GRACE)
        try:
            while (came := receiver.recv(1)) and came[0] != signal.SIGINT:
                pass
        except TimeoutError:
            came = b"late"
        if came:
            os.write(2, b"\nnsmbayes: interrupted\n")
            end()
        return


def end() -> None:
    """End the process now, as one that was interrupted; what was printed is shown."""
    shown = threading.Thread(target=sys.stdout.flush, daemon=True)  # it may wait for a reader that never comes
    shown.start()
    shown.join(0.2)
    os._exit(INTERRUPTED)
