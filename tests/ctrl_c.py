"""Lets a test start a program and interrupt it, however the tests were started.

A program started in the background of a script, or by `nohup`, inherits that Ctrl-C is ignored, as do its children.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """A program that is started within this block handles SIGINT as if a terminal had started it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
