"""What docs/limits.md says that messages cost: the requests and units that DynamoDB would count."""

from __future__ import annotations

import json
import math
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Transaction, body_field, message_id, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.protocol.store import ActionFailed, Commit, Conflict, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.record import Change, Record

CONTEXT = SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000, aws_request_id="1", function_name="docs")


class Counting(MemoryStore):
    """A store that counts the requests that DynamoDB would have got, and its units by AWS's rule."""

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__(namespace)
        self.reset()

    def reset(self) -> None:
        self.requests = {"insert": 0, "read": 0, "replace": 0, "commit": 0}
        self.writes = self.reads = 0

    def insert(self, records: Sequence[Record]) -> list[Written]:
        self._count("insert", len(records), most=25)
        self.writes += sum(units(record) for record in records)
        answers = super().insert(records)
        if len(records) == 1:
            return list(answers)
        # A batch's INSERT does not say what it has met.
        return [Conflict() if isinstance(answer, Conflict) else answer for answer in answers]

    def read(self, ids: Sequence[str]) -> Sequence[Record | None]:
        self._count("read", len(ids), most=100)
        self.reads += len(ids)
        return super().read(ids)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        self._count("replace", len(changes), most=25)
        self.writes += sum(units(change.new) for change in changes)
        return super().replace(changes)

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        self._count("commit", sum(1 + len(actions) for _, actions in commits), most=100)
        self.writes += sum(2 * units(change.new) + 2 * len(actions) for change, actions in commits)  # all are small
        return super().commit(commits)

    def _count(self, request: str, size: int, *, most: int) -> None:
        assert size <= most
        self.requests[request] += 1


def units(record: Record) -> int:
    return math.ceil(record.size_bytes / 1024)


class Standstill(SystemClock):
    """No time passes, so that all functions end within two milliseconds of each other."""

    def monotonic_seconds(self) -> float:
        return 0.0


def nothing(body: dict[str, Any]) -> dict[str, str]:
    return {"posted": str(uuid.uuid4())}


def failing(body: dict[str, Any]) -> None:
    raise ConnectionError


def writing_two(body: dict[str, Any], tx: Transaction) -> None:
    for table in ("left", "right"):
        tx.put(TableName=table, Item={"id": body["key"]})


def consume(
    store: Counting,
    function: Callable[..., Any],
    size: int,
    *,
    receives: int = 1,
    copy: str = "",
    effects: str = "any",
) -> None:
    """Handle a batch of so many messages, counting from nought."""
    attributes = {"ApproximateReceiveCount": str(receives)}
    records = [
        {"messageId": f"{copy}{n}", "body": json.dumps({"key": f"key-{n}"}), "attributes": attributes}
        for n in range(size)
    ]
    key = message_id if store.namespace is None else body_field("key")
    store.reset()
    sqs_consumer(store, key=key, effects=effects, clock=Standstill())(function)({"Records": records}, CONTEXT)


@pytest.mark.parametrize("size", [1, 10, 25, 26, 100])
def test_a_batch_costs_the_requests_that_are_documented(size: int) -> None:
    store = Counting()
    consume(store, nothing, size)
    chunks = math.ceil(size / 25)
    assert store.requests == {"insert": chunks, "read": 0, "replace": chunks, "commit": 0}


def test_done_messages_cost_one_read_for_a_hundred_of_them_and_no_write() -> None:
    store = Counting()
    consume(store, nothing, 150)
    consume(store, nothing, 150, receives=2)
    assert store.requests == {"insert": 0, "read": 2, "replace": 0, "commit": 0}


@pytest.mark.parametrize("effects", ["any", "transaction"])
@pytest.mark.parametrize(("size", "commits"), [(1, 1), (33, 1), (34, 2), (100, 4)])
def test_transactions_of_two_writes_share_a_request_by_thirty_three(size: int, commits: int, effects: str) -> None:
    """And without claims there is nothing else."""
    store = Counting()
    consume(store, writing_two, size, effects=effects)
    claims = math.ceil(size / 25) if effects == "any" else 0
    assert store.requests == {"insert": claims, "read": 0, "replace": 0, "commit": commits}


def test_messages_cost_the_units_that_are_documented() -> None:
    store, size = Counting(), 10
    consume(store, nothing, size)
    assert (store.writes, store.reads) == (2 * size, 0)
    consume(store, nothing, size, receives=2)
    assert (store.writes, store.reads) == (0, size)
    consume(store, failing, size, copy="failing-")
    assert (store.writes, store.reads) == (2 * size, 0)
    consume(store, nothing, size, receives=2, copy="failing-")
    assert (store.writes, store.reads) == (2 * size, size)
    consume(store, writing_two, size, copy="writing-")
    assert (store.writes, store.reads) == ((3 + 2 * 2) * size, 0)
    consume(store, writing_two, size, copy="unclaimed-", effects="transaction")
    assert (store.writes, store.reads) == ((2 + 2 * 2) * size, 0)


def test_new_messages_with_a_key_that_is_done_cost_the_units_that_are_documented() -> None:
    store, size = Counting(namespace="orders"), 10
    consume(store, nothing, size)
    consume(store, nothing, size, copy="again-")
    assert (store.writes, store.reads) == (size, size)
    consume(store, nothing, 1, copy="alone-")
    assert (store.writes, store.reads) == (1, 0)
