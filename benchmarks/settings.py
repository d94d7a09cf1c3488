"""How a subject is to be built, the events that it gets, and Lambda's context."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]
Handler = Callable[[Event, Any], Any]
"""What Lambda calls with an event and a context."""

QUEUE = "arn:aws:sqs:us-east-1:123456789012:transfers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a subject works with: its tables, and what its handler does for a message.

    `writes` lets the handler write an item of its own, by a transaction where the subject has one.
    """

    table: str
    entries: str
    handler_seconds: float = 0.0
    concurrency: int = 1
    writes: bool = False

    def pause(self) -> None:
        """What a handler waits for: nothing, or something slow elsewhere."""
        if self.handler_seconds:
            time.sleep(self.handler_seconds)


def entry(transfer: dict[str, Any]) -> dict[str, Any]:
    """The item that a handler writes of its own."""
    return {"account": transfer["transfer_id"], "amount": transfer["amount"]}


@dataclass(frozen=True, slots=True)
class Context:
    """Lambda's context, of an invocation that has just begun and has all the time it may need."""

    function_name: str = "consumer"
    memory_limit_in_mb: int = 1769
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:consumer"
    aws_request_id: str = "8f6c1ab2-53ae-4c1c-9b5e-000000000000"

    def get_remaining_time_in_millis(self) -> int:
        """Fifteen minutes, Lambda's longest."""
        return 900_000


def event(messages: int) -> Event:
    """A batch of messages that nobody has seen before."""
    return {"Records": [_record(str(uuid.UUID(bytes=os.urandom(16), version=4))) for _ in range(messages)]}


def redelivered(first: Event, fresh: Event) -> Event:
    """A batch in which the messages of `first` come a second time, with those of `fresh` between them."""
    again = [_again(record) for record in first["Records"]]
    many, few = sorted((again, list(fresh["Records"])), key=len, reverse=True)
    spread = max(1, len(many) // max(1, len(few)))
    mixed: list[dict[str, Any]] = []
    for place, record in enumerate(many):
        mixed.append(record)
        if place % spread == spread - 1 and few:
            mixed.append(few.pop())
    return {"Records": mixed + few}


def _again(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "attributes": {**record["attributes"], "ApproximateReceiveCount": "2"}}


def _record(id: str) -> dict[str, Any]:
    transfer = {"transfer_id": id, "from_account": "alice", "to_account": "bob", "amount": 1250, "currency": "USD"}
    return {
        "messageId": id,
        "receiptHandle": "AQEB" + id * 5,
        "body": json.dumps(transfer),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1795221600000",
            "SenderId": "AROAEXAMPLEEXAMPLEEXA:producer",
            "ApproximateFirstReceiveTimestamp": "1795221600012",
        },
        "messageAttributes": {},
        "md5OfBody": "a8793f06b6076b83f37f6fcec0fb331c",
        "eventSource": "aws:sqs",
        "eventSourceARN": QUEUE,
        "awsRegion": "us-east-1",
    }
