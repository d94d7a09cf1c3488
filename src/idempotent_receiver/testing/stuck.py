"""Stops endless waits: all attempts share one thread, so one can wait forever for a lock that another attempt holds."""

import bdb
import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context

MOST_SECONDS = 20.0
"""The maximum real time in a handler between two calls to fakes."""

LONGEST_UNWINDING_SECONDS = 1.0
"""How long a stuck thread may take to end."""

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


def on_another_thread(job: Callable[[], None]) -> None:
    """Run `job` on another thread, and raise here what it raises. When it is stuck there, Stuck is raised in its code
    too, where that does not wait for a lock; a thread that does is left behind.
    """
    context, raised = copy_context(), list[BaseException]()

    def run() -> None:
        try:
            context.run(job)
        except BaseException as error:  # noqa: BLE001  # raised on the calling thread
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except Stuck:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stuck))
        thread.join(LONGEST_UNWINDING_SECONDS)
        raise
    if raised:
        raise raised[0]


def goes_on() -> None:
    """Restart the timer: a handler has started or called a fake."""
    if _watched:
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS, MOST_SECONDS)


def _debugged() -> bool:
    return "pydevd" in sys.modules or isinstance(getattr(sys.gettrace(), "__self__", None), bdb.Bdb)
