"""Acts on dead letters, as the history keeps them, and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from idempotent_receiver.operations.dead_letters.history import (
    Act,
    Verb,
)

QUEUE = "arn:aws:sqs:us-east-1:123456789012:transfers"
OPERATOR = "arn:aws:sts::123456789012:assumed-role/Operators/alice"


def act(key: str = "bank#k1", **changed: Any) -> Act:
    made = Act(
        verb=Verb.MOVED,
        key=key,
        message_id="5f2c1d64-0001-4000-8000-000000000001",
        queue=QUEUE,
        dead_letter_queue=f"{QUEUE}-dead",
        operator=OPERATOR,
        why="it failed on attempt 5 and may be tried again",
        plan="p1",
    )
    return replace(made, **changed)


def create(dynamodb: Any, name: str = "history", *keys: str) -> None:
    """A table with these string keys; those of a history, if none is named."""
    keys = keys or ("key", "act")
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)],
    )
