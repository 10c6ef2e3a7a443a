"""A progress line that shows the current stage and the time taken, for computations of more than two seconds.

It is only shown on terminals and in notebooks. Any code can call `stage` to report the current stage, so no object has
to be passed along; outside of `waiting`, `stage` does nothing.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm.auto import tqdm

PATIENCE = 2.0  # seconds
_EVERY = 0.5  # seconds between updates


class _Waiting:
    """The title and the current stage of a computation."""

    def __init__(self, title: str):
        self.title = self.text = title


_NOW: ContextVar[_Waiting | None] = ContextVar("waiting", default=None)


@contextmanager
def waiting(title: str, *, progress: bool) -> Iterator[None]:
    """A context that, if it takes long, shows `title`, the current stage and the time; nested contexts show nothing."""
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
    """A context in which no progress line is shown, if `silent`."""
    token = _NOW.set(_Waiting("") if silent else _NOW.get())
    try:
        yield
    finally:
        _NOW.reset(token)


def stage(text: str) -> None:
    """Report the current stage to the progress line, if there is one."""
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
