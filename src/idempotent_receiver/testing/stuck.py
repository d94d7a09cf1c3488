"""Stops endless waits: all attempts share one thread, so one can wait forever for a lock that another attempt holds."""

import bdb
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOST_SECONDS = 20.0
"""The maximum real time in a handler between two calls to fakes."""

_watched = False


class Stuck(KeyboardInterrupt):
    """Raised in a handler that makes no progress."""


@contextmanager
def stopped_when_stuck() -> Iterator[None]:
    """Within the block, raise Stuck in code that does not call `goes_on` for `MOST_SECONDS`.

    Nothing is raised in a debugger, or where the signal is unavailable: outside the main thread, on Windows, and where
    something else uses SIGALRM, such as pytest-timeout.
    """
    global _watched  # noqa: PLW0603  # process-wide, like the timer
    if (
        threading.current_thread() is not threading.main_thread()
        or not hasattr(signal, "setitimer")
        or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    ):
        yield
        return

    def stop(*_: object) -> None:
        if not _debugged():
            raise Stuck

    signal.signal(signal.SIGALRM, stop)
    _watched = True
    try:
        goes_on()
        yield
    finally:
        _watched = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def goes_on() -> None:
    """Restart the timer: a handler has started or called a fake."""
    if _watched:
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS, MOST_SECONDS)


def _debugged() -> bool:
    return "pydevd" in sys.modules or isinstance(getattr(sys.gettrace(), "__self__", None), bdb.Bdb)
