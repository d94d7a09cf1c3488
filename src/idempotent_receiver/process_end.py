"""Ends this process at its deadline where Lambda's timeout does not: on Lambda Managed Instances.

A function that times out there keeps running while its lease ends and another worker takes over its claim. So a kernel
timer ends the process with SIGKILL. The timer needs neither the GIL nor a Python thread, so it also ends a process that
is stopped or whose GIL is held by C code. It keeps counting while the machine is suspended. It is armed before the
first claim is sent. A forked process does not inherit it.
"""

import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

from idempotent_receiver.clock import Deadline

if TYPE_CHECKING:
    import ctypes

Lifetime = Callable[[Deadline], AbstractContextManager[None]]
"""Makes the context manager for an invocation with this deadline."""

_CLOCK_BOOTTIME = 7
_SIGEV_SIGNAL = 0
_PR_SET_PDEATHSIG = 1


def lifetime(*, end_process_at_deadline: bool) -> Lifetime:
    """The context manager for invocations: if requested, it ends the process at the deadline. Raises RuntimeError on a
    system without a suitable timer.
    """
    if not end_process_at_deadline:
        return lambda deadline: nullcontext()
    try:
        _call("timer_delete", _created())
    except (OSError, AttributeError) as error:
        raise RuntimeError(
            "end_process_at_deadline needs Linux and its timer_create(CLOCK_BOOTTIME), which this system lacks "
            f"({sys.platform}): omit the option where Lambda's timeout ends the process"
        ) from error
    return _process_ends_at


@contextmanager
def _process_ends_at(deadline: Deadline) -> Iterator[None]:
    """End the process at the deadline unless the body has returned or failed by then. An interrupt or an exit leaves
    the timer armed. Several invocations may run at once.

    Raises OSError or RuntimeError if no timer can be armed: then nothing may be claimed.
    """
    seconds = deadline.moment().left_to_start_seconds
    if seconds <= 0:
        # No further message is claimed, so the process need not end.
        yield
        return
    timer, exiting = Timer(), False
    try:
        timer.arm(seconds)
        yield
    except (KeyboardInterrupt, SystemExit):
        # Handlers and other code may still run before the process ends.
        exiting = True
        raise
    finally:
        if not exiting:
            timer.delete()


class Timer:
    """A kernel timer that ends this process. Raises OSError or RuntimeError if the timer cannot be created."""

    def __init__(self) -> None:
        if os.getpid() == 1:
            raise RuntimeError(
                "end_process_at_deadline cannot end the process with PID 1, which the kernel protects from its own "
                "signals: run it under an init process, such as `docker run --init`"
            )
        self._timer = _created()

    def arm(self, seconds: float) -> None:
        """End the process after `seconds`, or at once if `seconds` is not positive. Replaces an earlier time."""
        nanoseconds = max(1, int(seconds * 1e9))  # zero would disarm it
        once = struct.pack("@qqqq", 0, 0, *divmod(nanoseconds, 10**9))  # struct itimerspec: no interval, one delay
        _call("timer_settime", self._timer, 0, once, None)

    def disarm(self) -> None:
        """Cancel the timer."""
        _call("timer_settime", self._timer, 0, struct.pack("@qqqq", 0, 0, 0, 0), None)

    def delete(self) -> None:
        """Cancel and delete the timer."""
        _call("timer_delete", self._timer)


def die_with(parent: int) -> None:
    """End this process once its parent (process id `parent`) dies. Call it once, on the main thread, at startup."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # the parent was already dead


def _created() -> "ctypes.c_void_p":
    import ctypes  # noqa: PLC0415  # imported here because few processes need it

    timer = ctypes.c_void_p()
    event = struct.pack("@Pii48x", 0, signal.SIGKILL, _SIGEV_SIGNAL)  # struct sigevent, 64 bytes
    _call("timer_create", _CLOCK_BOOTTIME, event, ctypes.byref(timer))
    return timer


def _call(function: str, *arguments: object) -> None:
    import ctypes  # noqa: PLC0415

    if getattr(_library(), function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cache
def _library() -> "ctypes.CDLL":
    import ctypes  # noqa: PLC0415

    if sys.platform != "linux":
        raise OSError("no POSIX timers")
    own = ctypes.CDLL(None, use_errno=True)
    # Before glibc 2.34, timers were in a separate library.
    return own if hasattr(own, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
