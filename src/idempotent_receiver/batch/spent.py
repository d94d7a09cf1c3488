"""Where a batch's time went, in the store or in handlers, and the number of its requests."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Spent:
    """Sums over all of a batch's requests and runs, in seconds. Concurrent ones all count, so a sum may exceed the
    batch's duration.

    `call` is the time of the calls in records' outboxes. A request's time includes its retries and the pauses between
    them. `read` is the time that handlers waited for their transactions' reads; `handler` excludes it. `requests` is
    the number of store calls, including repeated ones.
    """

    claim: float = 0.0
    read: float = 0.0
    handler: float = 0.0
    longest_handler: float = 0.0
    settle: float = 0.0
    call: float = 0.0
    requests: int = 0

    def ran(self, seconds: float, reads: Sequence[float]) -> None:
        """Add a run and its reads. The reads' sum may exceed the run's duration if they were concurrent."""
        if reads:
            read = min(sum(reads), seconds)
            self.read += read
            self.requests += len(reads)
            seconds -= read
        self.handler += seconds
        self.longest_handler = max(self.longest_handler, seconds)
