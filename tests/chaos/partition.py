"""Partitions: for a while nothing passes between a worker and one service, and nobody else notices anything.

Nothing that hangs is lost. As on a network, a request goes on when its partition ends, though its sender has given up
long before, and may be dead.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tests.chaos.proxy import worker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.serving import Respond


class Service(StrEnum):
    """By what its requests' targets begin with."""

    DYNAMODB = "DynamoDB"
    SQS = "AmazonSQS"


class Cut(StrEnum):
    """What a parted worker notices."""

    REQUESTS_HANG = "requests hang"
    ANSWERS_HANG = "answers hang"
    """The requests take effect at once."""
    CONNECTIONS_BREAK = "connections break"


class Partition(NamedTuple):
    """`worker` is a part of the names of those who are parted: of one process, or of all that a supervisor has."""

    worker: str
    service: Service
    cut: Cut
    ends_seconds: float


class Partitions:
    """Stands before whoever responds."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._partitions: list[Partition] = []
        self._lock = threading.Lock()
        self.met: Counter[tuple[Service, Cut]] = Counter()
        """How many requests and answers met with a partition."""

    def part(self, worker: str, service: Service, cut: Cut, seconds: float) -> None:
        """Let nothing pass between them from now on."""
        now = time.monotonic()
        with self._lock:
            lasting = [one for one in self._partitions if one.ends_seconds > now]
            self._partitions = [*lasting, Partition(worker, service, cut, now + seconds)]

    def await_end(self) -> None:
        """Wait until nobody is parted from anything."""
        now = time.monotonic()
        time.sleep(max((one.ends_seconds - now for one in self._partitions if one.ends_seconds > now), default=0.0))

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        """Let one request pass, and its answer, as soon as both may."""
        if not self._passes(headers, always=Cut.ANSWERS_HANG):
            return None
        answer = self._respond(path, headers, body)
        return answer if self._passes(headers) else None

    def _passes(self, headers: Mapping[str, str], *, always: Cut | None = None) -> bool:
        partition = self._between(headers)
        if partition is None or partition.cut is always:
            return True
        with self._lock:
            self.met[partition.service, partition.cut] += 1
        if partition.cut is Cut.CONNECTIONS_BREAK:
            return False
        time.sleep(max(0.0, partition.ends_seconds - time.monotonic()))
        return True

    def _between(self, headers: Mapping[str, str]) -> Partition | None:
        workers, target, now = worker_of(headers).split("/"), headers["X-Amz-Target"], time.monotonic()
        for one in self._partitions:
            if one.worker in workers and target.startswith(one.service) and one.ends_seconds > now:
                return one
        return None
