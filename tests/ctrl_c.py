"""Programs that a test starts and interrupts, whoever started the tests.

What is started in the background of a script, or by `nohup`, ignores Ctrl-C from its parent on, and so do its children.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """What is started within this block begins with SIGINT as a terminal gives it: a handler is reset at the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
