"""A line for people who wait: what is being done and for how long, shown once it has taken two seconds.

On terminals and in notebooks only. What is being done is told by `stage`, from wherever it happens, so that nothing has
to be passed along; without anybody waiting `stage` does nothing.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm.auto import tqdm

PATIENCE = 2.0  # seconds
_EVERY = 0.5  # seconds between two looks at the clock


class _Waiting:
    """What is being done now."""

    def __init__(self, title: str):
        self.title = self.text = title


_NOW: ContextVar[_Waiting | None] = ContextVar("waiting", default=None)


@contextmanager
def waiting(title: str, *, progress: bool) -> Iterator[None]:
    """While this is open and takes long, show `title`, the current stage and the time; the outermost one is shown."""
    if not progress or _NOW.get() is not None or not _somebody_looks():
        yield
        return
    now, ended = _Waiting(title), threading.Event()
    token = _NOW.set(now)
    thread = threading.Thread(target=_show, args=(now, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _NOW.reset(token)


@contextmanager
def quiet(silent: bool = True) -> Iterator[None]:
    """Show nothing of what is waited for inside."""
    token = _NOW.set(_Waiting("") if silent else _NOW.get())
    try:
        yield
    finally:
        _NOW.reset(token)


def stage(text: str) -> None:
    """Say what is being done, to whoever waits."""
    now = _NOW.get()
    if now is not None:
        now.text = f"{now.title}: {text}"


def _somebody_looks() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _show(now: _Waiting, ended: threading.Event) -> None:
    if ended.wait(PATIENCE):
        return
    with tqdm(desc=now.text, bar_format="{desc} [{elapsed}]", leave=False) as bar:
        bar.start_t -= PATIENCE
        while not ended.wait(_EVERY):
            bar.set_description_str(now.text)
