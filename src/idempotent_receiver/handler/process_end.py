"""The end of this process at a deadline, for where a time-out ends nothing: Lambda Managed Instances.

A function that has timed out there goes on running, while its lease ends and another worker takes its claim over. So
the process ends itself, by a timer of the kernel's whose signal is SIGKILL. It needs neither the GIL nor a thread of
Python's, so it ends a process in which C code holds the GIL, and one that is stopped; and it counts on while the
machine is suspended. It is armed before the first claim is sent. A process that is forked does not inherit it.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

from idempotent_receiver.clock import Deadline

if TYPE_CHECKING:
    from ctypes import CDLL, c_void_p

Lifetime = Callable[[Deadline], AbstractContextManager[None]]
"""What an invocation with this deadline runs within."""

_CLOCK_BOOTTIME = 7
_SIGEV_SIGNAL = 0


def lifetime(*, end_process_at_deadline: bool) -> Lifetime:
    """What invocations run within: where asked for, a process that ends at their deadlines. Raises RuntimeError where
    the system has no timer for that.
    """
    if not end_process_at_deadline:
        return lambda deadline: nullcontext()
    try:
        _delete(_created())
    except (OSError, AttributeError) as error:
        raise RuntimeError(
            f"end_process_at_deadline needs Linux and its timer_create(CLOCK_BOOTTIME), and {sys.platform} refuses it "
            "here: leave the option out where Lambda's time-out ends the process"
        ) from error
    return _process_ends_at


@contextmanager
def _process_ends_at(deadline: Deadline) -> Iterator[None]:
    """End the process at the deadline, unless what is within has returned or failed by then. An interrupt and an exit
    leave the timer armed. Several invocations may be under way at once.

    Raises OSError or RuntimeError where no timer can be armed: then nothing may be claimed.
    """
    if os.getpid() == 1:
        raise RuntimeError(
            "end_process_at_deadline cannot end a process with the id 1, which the kernel protects from its own "
            "signals: run it under an init, such as `docker run --init`"
        )
    seconds = deadline.left_to_start_seconds
    if seconds <= 0:
        # Nothing is claimed any more, so that there is nothing to end.
        yield
        return
    timer, told_to_end = _created(), False
    try:
        _set(timer, seconds)
        yield
    except (KeyboardInterrupt, SystemExit):
        # Handlers may still run, and whatever else the process does before it ends may take longer.
        told_to_end = True
        raise
    finally:
        if not told_to_end:
            _delete(timer)


def _created() -> "c_void_p":
    from ctypes import byref, c_void_p  # noqa: PLC0415  # imported where it is used: few need it
    from signal import SIGKILL  # noqa: PLC0415
    from struct import pack  # noqa: PLC0415

    timer = c_void_p()
    event = pack("@Pii48x", 0, SIGKILL, _SIGEV_SIGNAL)  # struct sigevent, 64 bytes
    _checked(_library().timer_create(_CLOCK_BOOTTIME, event, byref(timer)))
    return timer


def _set(timer: "c_void_p", seconds: float) -> None:
    from struct import pack  # noqa: PLC0415

    nanoseconds = max(1, int(seconds * 1e9))  # nothing at all would disarm it
    once = pack("@qqqq", 0, 0, *divmod(nanoseconds, 10**9))  # struct itimerspec: no interval, and when
    _checked(_library().timer_settime(timer, 0, once, None))


def _delete(timer: "c_void_p") -> None:
    _checked(_library().timer_delete(timer))


def _checked(status: int) -> None:
    if status != 0:
        from ctypes import get_errno  # noqa: PLC0415

        raise OSError(get_errno(), os.strerror(get_errno()))


@cache
def _library() -> "CDLL":
    from ctypes import CDLL  # noqa: PLC0415

    if sys.platform != "linux":
        raise OSError("no POSIX timers")
    own = CDLL(None, use_errno=True)
    # Before glibc 2.34 they were in a library of their own.
    return own if hasattr(own, "timer_create") else CDLL("librt.so.1", use_errno=True)
