"""A worker process's reports to its supervisor, so that its messages can be returned if it dies.

Best effort: a stopped supervisor must not stop the process, and leases run out on their own.
"""

import json
import os
from contextlib import suppress

LONGEST_REPORT = 4096
"""The most bytes that a pipe writes atomically."""


class Reports:
    """Writes JSON lines to a pipe, each an event and its arguments; without a pipe, drops them. `owner` is this
    process's unique name in the records that it claims.
    """

    def __init__(self, pipe: int | None, owner: str) -> None:
        self._pipe = pipe
        self.owner = owner
        if pipe is not None:
            os.set_blocking(pipe, False)
        self._tell("begins", owner)

    def received(self, id: str, handle: str, receives: int) -> None:
        """A message was received; `receives` is its receive count."""
        self._tell("received", id, handle, receives)

    def claims(self, handle: str, record_id: str) -> None:
        """The message's record is about to be claimed."""
        self._tell("claims", handle, record_id)

    def started(self, handle: str) -> None:
        """The message's handler starts."""
        self._tell("started", handle)

    def ended(self, handle: str) -> None:
        """The message's outcome is known."""
        self._tell("ended", handle)

    def suspect(self, id: str, seconds: float) -> None:
        """A message that a process died running will be redelivered: it runs alone for `seconds`."""
        self._tell("suspect", id, seconds)

    def works(self) -> None:
        """The process has started, and has returned its orphans to the queue."""
        self._tell("works")

    def dead_by(self, boottime_seconds: float | None) -> None:
        """The time by which this process must be dead, in seconds since boot; None for no such time."""
        self._tell("dead by", boottime_seconds)

    def _tell(self, *event: object) -> None:
        line = json.dumps(event).encode() + b"\n"
        if self._pipe is not None and len(line) <= LONGEST_REPORT:
            with suppress(OSError):
                os.write(self._pipe, line)
