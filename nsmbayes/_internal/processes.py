"""Child processes of this package end when their parent ends."""

import os
import signal
import threading
import time


def end_with_parent(parent: int) -> None:
    """Watch the parent process in a thread; when it has ended, kill this process and its process group."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
