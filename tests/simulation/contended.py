"""DynamoDB with other requests under way, on the virtual clock: a transaction takes a while, and others on its items
conflict meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Surroundings, Tables
from idempotent_receiver import raw_requests
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.testing.world import World
from tests.simulation.wire import GreenletLocal

if TYPE_CHECKING:
    from collections.abc import Iterator

UNDER_WAY_SECONDS, HALF_A_ROUND_TRIP_SECONDS = 0.005, 0.0025


class Contended(Surroundings):
    """Tables in a world: what a transaction does takes a while, in which others are served."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.world = World(Random(seed).random)
        self.tables = Tables(self)
        for name in ("records", "accounts"):
            self.tables.execute("CreateTable", {"TableName": name, "KeySchema": [{"AttributeName": "id"}]})
        self.client = client_of(self._send, client_config())

    def seconds(self) -> float:
        """The world's time."""
        return self.world.now

    def between(self) -> None:
        """A transaction is under way."""
        self._wait(UNDER_WAY_SECONDS)

    def _send(self, operation: str, body: bytes) -> tuple[int, bytes]:
        self._wait(HALF_A_ROUND_TRIP_SECONDS)
        answer = answered(self.tables, operation, body)
        self._wait(HALF_A_ROUND_TRIP_SECONDS)
        return answer

    def _wait(self, seconds: float) -> None:
        self.world.sleep(seconds * self.random.uniform(0.5, 1.5))


@contextmanager
def in_greenlets() -> Iterator[None]:
    """Within the block, each worker's calls are its own."""
    with patch.object(raw_requests, "_thread", GreenletLocal()):
        yield
