"""Processes that this package starts: they end with the one that started them."""

import os
import signal
import threading
import time


def end_with_parent(parent: int, *, group: bool = False) -> None:
    """Watch the process `parent`, which started this one; when it has ended, end, and with `group` its group too."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        if group:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
