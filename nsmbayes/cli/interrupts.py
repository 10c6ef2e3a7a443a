"""Ctrl-C ends a command within two seconds, even during a compiled program, which Python cannot interrupt."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The exit code of an interrupted command, by convention of shells."""
_GRACE = 1.5  # seconds in which a command can end by itself


@contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Context in which the process ends at most `_GRACE` seconds after Ctrl-C, or immediately after a second one.

    Python raises KeyboardInterrupt only between two bytecode instructions, and a compiled program is one instruction.
    The signal itself can arrive at any time: it writes a byte, which a thread waits for. Files are written completely
    before they are moved to their place, so an end at any moment leaves no partial files.
    """
    if threading.current_thread() is not threading.main_thread():  # other threads receive no signals
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
    """End the process immediately with the exit code of an interrupt, after flushing the output."""
    shown = threading.Thread(target=sys.stdout.flush, daemon=True)  # flushing can block if nobody reads the output
    shown.start()
    shown.join(0.2)
    os._exit(INTERRUPTED)
