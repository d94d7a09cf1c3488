"""What a worker process tells its supervisor, so that what it held can be given back if it dies. Best effort: a
supervisor that is stopped must not stop the process, and leases end by themselves.
"""

import json
import os
from contextlib import suppress

LONGEST_REPORT = 4096
"""Bytes that a pipe takes at once or not at all."""


class Reports:
    """Lines of JSON on a pipe: what happened, and its arguments. Without a pipe they go nowhere. `owner` is the name of
    this process in the records that it claims, which no other process has.
    """

    def __init__(self, pipe: int | None, owner: str) -> None:
        self._pipe = pipe
        self.owner = owner
        if pipe is not None:
            os.set_blocking(pipe, False)
        self._tell("begins", owner)

    def received(self, id: str, handle: str, receives: int) -> None:
        """A message is here, for the so-manieth time."""
        self._tell("received", id, handle, receives)

    def claims(self, handle: str, record_id: str) -> None:
        """The message's record is about to be claimed."""
        self._tell("claims", handle, record_id)

    def started(self, handle: str) -> None:
        """Its handler starts."""
        self._tell("started", handle)

    def ended(self, handle: str) -> None:
        """It has its outcome."""
        self._tell("ended", handle)

    def suspect(self, id: str, seconds: float) -> None:
        """A message comes again that a process has died with: it runs alone for so long."""
        self._tell("suspect", id, seconds)

    def works(self) -> None:
        """It could begin, and has given back what it was given for that."""
        self._tell("works")

    def dead_by(self, boottime_seconds: float | None) -> None:
        """When this process must be dead, by the machine's clock since its start; None if it need not be."""
        self._tell("dead by", boottime_seconds)

    def _tell(self, *event: object) -> None:
        line = json.dumps(event).encode() + b"\n"
        if self._pipe is not None and len(line) <= LONGEST_REPORT:
            with suppress(OSError):
                os.write(self._pipe, line)
