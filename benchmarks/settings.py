"""A subject's settings, its events, and Lambda's context."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Handler = Callable[[Event, Any], Any]
"""A Lambda handler: it takes an event and a context."""

TABLE, ENTRIES, QUEUE = "records", "entries", "messages"

_FRESH = Path(__file__).resolve().parent.parent / "events" / "fresh.json"
_RECORD: dict[str, Any] = json.loads(_FRESH.read_text())["Records"][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of batch, the behaviour of its handlers, and the subjects that handle it.

    `duplicates` is the share of messages that were completed before. If `writes`, each handler writes one item, in a
    transaction where the subject offers one: an item of its own, or one of so many `hot_items` that all share. The
    condition of a share `failing` of them does not hold. If `reads`, it first reads that item, and writes what it makes
    of it; if `sends`, it also sends a message. If `pinned`, a subject runs on the one CPU set aside for them.
    """

    name: str
    messages: int
    subjects: tuple[str, ...]
    repeats: int = 1
    delay_seconds: float = 0.005
    duplicates: float = 0.0
    handler_seconds: float = 0.0
    concurrency: int = 1
    writes: bool = False
    reads: bool = False
    sends: bool = False
    hot_items: int = 0
    failing: float = 0.0
    pinned: bool = True

    def pause(self) -> None:
        """Wait as long as a handler waits for a slow dependency."""
        if self.handler_seconds:
            time.sleep(self.handler_seconds)


PLAIN = Cell(name="plain", messages=1, subjects=())
"""For subjects that only need to be built."""


def update(transfer: dict[str, Any]) -> dict[str, Any]:
    """A handler's write, in plain values: it adds an amount to an account, if that is as the message says."""
    return {
        "TableName": ENTRIES,
        "Key": {"account": transfer["account"]},
        "UpdateExpression": "ADD balance :amount",
        "ConditionExpression": f"attribute_{'exists' if transfer['fails'] else 'not_exists'}(frozen)",
        "ExpressionAttributeValues": {":amount": transfer["amount"]},
    }


def read(transfer: dict[str, Any]) -> dict[str, Any]:
    """A handler's read, in plain values: of the account that it writes next."""
    return {"TableName": ENTRIES, "Key": {"account": transfer["account"]}}


def set_balance(transfer: dict[str, Any], found: Mapping[str, Any] | None) -> dict[str, Any]:
    """A handler's write after reading the account: its new balance."""
    values = {":balance": transfer["amount"] + (found["balance"] if found else 0)}
    return {**read(transfer), "UpdateExpression": "SET balance = :balance", "ExpressionAttributeValues": values}


def sent(transfer: dict[str, Any]) -> dict[str, Any]:
    """A handler's message: a receipt for its write."""
    return {"MessageBody": json.dumps({"account": transfer["account"], "amount": transfer["amount"]})}


@dataclass(frozen=True, slots=True)
class Context:
    """The context of an invocation that has just begun and has plenty of time left."""

    function_name: str = "consumer"
    memory_limit_in_mb: int = 1769
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:consumer"
    aws_request_id: str = "8f6c1ab2-53ae-4c1c-9b5e-000000000000"

    def get_remaining_time_in_millis(self) -> int:
        """Fifteen minutes, Lambda's longest timeout."""
        return 900_000


def event(messages: int, *, hot_items: int = 0, failing: float = 0.0) -> Event:
    """A batch of messages that are delivered for the first time; those that fail are spread evenly."""
    return {
        "Records": [
            _record(
                str(uuid.UUID(bytes=os.urandom(16), version=4)),
                account=f"account-{number % hot_items}" if hot_items else None,
                fails=int((number + 1) * failing) > int(number * failing),
            )
            for number in range(messages)
        ]
    }


def failing(batch: Event) -> list[str]:
    """The messages whose condition does not hold."""
    return [record["messageId"] for record in batch["Records"] if json.loads(record["body"])["fails"]]


def redelivered(first: Event, fresh: Event) -> Event:
    """A batch with the messages of `first`, delivered for the second time, and those of `fresh` spread among them."""
    again = [_again(record) for record in first["Records"]]
    # Each record's place in its own half, as a share of the whole, merges the two evenly.
    halves = (again, fresh["Records"])
    places = [(place / len(half), record) for half in halves for place, record in enumerate(half)]
    return {"Records": [record for _, record in sorted(places, key=lambda each: each[0])]}


def _again(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "attributes": {**record["attributes"], "ApproximateReceiveCount": "2"}}


def _record(id: str, account: str | None, fails: bool) -> dict[str, Any]:
    body = json.loads(_RECORD["body"]) | {"transfer_id": id, "account": account or id, "fails": fails}
    return {**_RECORD, "messageId": id, "receiptHandle": "AQEB" + id * 5, "body": json.dumps(body)}
