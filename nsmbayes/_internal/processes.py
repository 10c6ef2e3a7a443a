"""Processes that this package starts: they end with the one that started them."""

import os
import signal
import threading
import time


def end_with_parent(parent: int) -> None:
    """Watch the process `parent`, which started this one; when it has ended, end, with all of the group."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
