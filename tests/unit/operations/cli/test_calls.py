"""`receiver stuck --send` of a record with calls, by the code that --consumer names, and what `trace` says of one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.transaction.outbox import OutboxCall, confirmed, to_text
from tests.unit.operations.cli.stack import LONG_AGO_MS, Receiver, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "order-1"
OUTBOX = to_text([OutboxCall("notify", {"order": "secret-1"}), OutboxCall("bill", {"order": "secret-2"})])
CODE = """
from idempotent_receiver import DynamoDBStore, PermanentError, sqs_consumer

def notify(order: str, *, idempotency_key: str) -> None:
    with open("called", "a") as file:
        file.write(f"notify {order}\\n")

def bill(order: str) -> None:
    raise ValueError(order)

@sqs_consumer(DynamoDBStore("records"), calls=[notify, bill])
def handler(body: dict): ...

@sqs_consumer(DynamoDBStore("records", "other"), calls=[notify])
def other(body: dict): ...
"""


@pytest.fixture
def uncalled(receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A record whose calls are left, and the code that makes them in the current folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("caller_code.py").write_text(CODE)
    stack.record(KEY, "SENDING", outbox=OUTBOX, in_progress_expiration=LONG_AGO_MS, owner="w")
    stack.bury(KEY)
    yield stack
    sys.modules.pop("caller_code", None)


def item(stack: Stack) -> dict[str, Any]:
    found = stack.dynamodb.get_item(TableName="records", Key={"id": {"S": KEY}})["Item"]
    return {name: next(iter(value.values())) for name, value in found.items()}


def test_calls_are_made_by_the_code_that_is_named_and_what_fails_is_named(receiver: Receiver, uncalled: Stack) -> None:
    ran = receiver.on(f"stuck --send {KEY} --yes")
    assert (ran.code, ran.out) == (
        Exit.LEFT,
        "Not done: it has calls to make: give --consumer module:handler, which imports your code.\n",
    )

    ran = receiver.on(f"stuck --send {KEY} --consumer caller_code:handler --yes")
    assert (ran.code, "Not done: call 2 (bill): ValueError at caller_code.bill" in ran.out) == (Exit.LEFT, True)
    assert Path("called").read_text() == "notify secret-1\n"
    assert item(uncalled)["outbox"] == confirmed(OUTBOX, {1})

    ran = receiver.on(f"stuck --send {KEY} --give-up 2 --because INC-7 --consumer caller_code:handler --yes")
    assert (ran.code, ran.out) == (Exit.OK, f"Message 2 is given up. {KEY} has none left to send.\n")
    assert item(uncalled)["status"] == "COMPLETED"
    traced = receiver.on(f"trace {KEY}").out
    assert "bill is never sent" in " ".join(traced.split())


def test_no_screen_shows_an_argument(receiver: Receiver, uncalled: Stack) -> None:
    shown = [
        receiver.on(line)
        for line in (
            f"trace {KEY}",
            f"trace {KEY} --json",
            "stuck --yes",
            "stuck --yes --json",
            "dlq list",
            "dlq list --json",
            f"stuck --send {KEY} --consumer caller_code:handler --yes",
        )
    ]
    assert not any("secret" in ran.out + ran.err for ran in shown)
    assert "its messages and calls may not be done" in " ".join(shown[0].out.split())
    assert json.loads(shown[3].out)["unsent_count"] == 1


def test_a_record_whose_calls_are_made_says_so(receiver: Receiver, uncalled: Stack) -> None:
    uncalled.record(KEY, "SENDING", outbox=confirmed(OUTBOX, {2}), in_progress_expiration=LONG_AGO_MS, owner="w")
    ran = receiver.on(f"stuck --send {KEY} --consumer caller_code:handler --yes")
    assert (ran.code, ran.out) == (Exit.OK, f"Sent the messages and made the calls for {KEY}.\n")
    assert item(uncalled)["status"] == "COMPLETED"
