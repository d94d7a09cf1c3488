"""An event loop where adapters of ASGI look for one, as a Lambda function's process has."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def current_loop() -> Iterator[None]:
    """Make a new loop this thread's current one, and close it. Without one, Python warns or raises, by its version."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()
