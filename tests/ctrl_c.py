"""Lets a test start a program and interrupt it, however the tests were started.

A program started in the background of a script inherits that Ctrl-C is ignored, one started by `nohup` that the loss of
its terminal is, and so do their children.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """A program that is started within this block handles SIGINT and SIGHUP as if a terminal had started it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGHUP, hangup)
