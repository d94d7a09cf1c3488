"""A worker process's reports to its supervisor, so that its messages can be returned if it dies.

Best effort: a stopped supervisor must not stop the process, and leases run out on their own.
"""

import json
import os
from collections.abc import Iterable
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

    def received(self, messages: Iterable[tuple[str, str, int]]) -> None:
        """Messages were received, each with its id, its handle and its receive count."""
        self._tell_all(("received", *message) for message in messages)

    def claims(self, claims: Iterable[tuple[str, str]]) -> None:
        """Records are about to be claimed, each for the message with this handle."""
        self._tell_all(("claims", *claim) for claim in claims)

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
        self._tell_all([event])

    def _tell_all(self, events: Iterable[tuple[object, ...]]) -> None:
        text = b""
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            if len(line) > LONGEST_REPORT:
                continue
            if len(text) + len(line) > LONGEST_REPORT:
                self._write(text)
                text = b""
            text += line
        self._write(text)

    def _write(self, text: bytes) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe, text)
