"""`receiver show`: what a record says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import records
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, from_attributes
from idempotent_receiver.testing import sqs_event
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.unit.operations.cli.stack import CLOSED, FLAKY, FOR_GOOD, LASTING, STUCK, Receiver, Stack

ON = "--table records"


def test_show_tells_how_much_of_a_lease_is_left(receiver: Receiver, stack: Stack) -> None:
    until = SystemClock().epoch_ms() + 90_000
    stack.record("held", "INPROGRESS", in_progress_expiration=until, owner="request-2")
    assert 80 <= receiver(f"show held {ON} --json").json["lease_left_seconds"] <= 90
    assert re.search(r"(?m)^lease +0:01:\d\d left, until ", receiver(f"show held {ON}").out)
    over = receiver(f"show {STUCK} {ON}").out
    starts = [re.match(r"\w+( about)? +", line) for line in over.splitlines()]
    assert {0 if each is None else each.end() for each in starts} == {len("written about  ")}, "all in one column"
    assert re.search(r"(?m)^lease +over since 2023-11-14T22:13:20Z *$", over)
    assert "left" not in over


def test_when_a_record_was_written_is_not_said_to_be_in_the_future(receiver: Receiver, stack: Stack) -> None:
    """Where records last longer than is known, their end says nothing of their beginning."""
    written = datetime.now(UTC) - timedelta(days=1)
    stack.record(CLOSED, "FAILED", error=FOR_GOOD, expiration=int(written.timestamp()) + 90 * 86_400)
    stack.forget(FLAKY, STUCK)
    for line in (f"show {CLOSED} {ON}", f"stuck --yes {ON}"):
        assert '"written_about": null' in receiver(f"{line} --json").out
        assert re.search(f"written about:? +{records.UNDATED}", receiver(line).out)
        known = receiver(f"{line} --consumer '90 days.json'").out
        assert records.UNDATED not in known
        assert f"{written:%Y-%m-%dT%H:%M:%SZ}" in known


def test_show_calls_expired_what_counts_as_absent(receiver: Receiver, stack: Stack) -> None:
    stack.record("old", "COMPLETED", expiration=1_700_000_000)
    assert receiver(f"show old {ON} --json").json["status"] == "EXPIRED"
    assert "EXPIRED (it was COMPLETED" in receiver(f"show old {ON}").out


def test_show_takes_a_key_of_its_namespace_first_and_a_whole_id_as_well(receiver: Receiver, stack: Stack) -> None:
    bank = f"{ON} --consumer bank.json --json"
    stack.record("bank#o-1", "COMPLETED")
    for given in ("o-1", "bank#o-1"):
        told = receiver(f"show {given} {bank}").json
        assert (told["id"], told["key"]) == ("bank#o-1", "o-1")
    stack.record("bank#bank#o-1", "COMPLETED")
    told = receiver(f"show bank#o-1 {bank}").json
    assert (told["id"], told["key"]) == ("bank#bank#o-1", "bank#o-1")


@pytest.mark.parametrize(
    ("given", "id"),
    [
        ("o-1 --consumer shop.json", "shop#o-1"),
        ("bank#o-2 --consumer bank.json", "bank#o-2"),
        ("nosuch", "nosuch"),
    ],
)
def test_an_unknown_key_is_named_with_what_to_check(receiver: Receiver, stack: Stack, given: str, id: str) -> None:
    stack.record("bank#o-1", "COMPLETED")
    ran = receiver(f"show {given} {ON}")
    assert (ran.code, f"There is no record {id} in records: check --consumer" in ran.out) == (1, True)


def records_left(effects: str) -> dict[str, dict[str, Any]]:
    """What `show` says of the records of four messages, handled at one moment by one invocation."""
    clock, store = ManualClock(), MemoryStore(tables={"done": "id"})
    orphan = {"id": "orphaned", "status": "INPROGRESS", "version": "v", "attempts": 1, "owner": "dead"}
    store.items["orphaned"] = orphan | {"expiration": LASTING, "in_progress_expiration": clock.epoch_ms() - 1}

    @sqs_consumer(store, effects=effects, clock=clock)
    def handle(body: dict, message: Message, tx: Transaction) -> str:
        tx.put(TableName="done", Item={"id": message.id})
        match message.id:
            case "flaky":
                raise ConnectionError
            case "closed":
                raise PermanentError("account closed")
        return message.id

    fresh = sqs_event({}, {}, {}, ids=["good", "flaky", "closed"])["Records"]
    again = sqs_event({}, ids=["orphaned"], receive_count=2)["Records"]
    handle({"Records": fresh + again}, Context(clock))
    deployment: Any = SimpleNamespace(key_of=str, retention_seconds=DEFAULT_RETENTION_SECONDS)
    return {
        id: records.record_values(from_attributes(item), deployment, clock.epoch_ms())
        for id, item in store.items.items()
    }


def test_show_says_of_a_record_that_nobody_claimed_what_it_says_of_one_that_was_claimed() -> None:
    """It has no lease, and the attempt of a worker that claimed it and died counts."""
    shown = records_left("transaction")
    assert shown == records_left("any")
    assert {id: (each["status"], each["attempts"], each["lease_until"]) for id, each in shown.items()} == {
        "good": ("COMPLETED", 1, None),
        "flaky": ("FAILED", 1, None),
        "closed": ("FAILED", 1, None),
        "orphaned": ("COMPLETED", 2, None),
    }


@pytest.mark.parametrize("consumer", ["", "--consumer bank.json"], ids=["all", "one"])
def test_show_takes_what_stuck_and_list_print(receiver: Receiver, stack: Stack, consumer: str) -> None:
    body = '{"id": "o-1"}'
    stack.record("bank#o-1", "FAILED", body, error=Failure(type="E").to_json())
    stack.bury("whatever", body)
    stuck = receiver(f"stuck {ON} --yes --json {consumer}").json
    (printed,) = [each["key"] for each in stuck["failing"] if each["id"] == "bank#o-1"]
    assert printed in receiver(f"stuck {ON} --yes {consumer}").out.split()
    assert receiver(f"show {printed} {ON} {consumer} --json").json["id"] == "bank#o-1"

    business = "--consumer orders.json --json"
    listed = receiver.on(f"dlq list {business}").json
    (printed,) = [each["key"] for group in listed["groups"] for each in group["letters"] if each["key"]]
    assert receiver.on(f"show {printed} {business}").json["id"] == "bank#o-1"


def test_nothing_that_others_wrote_reaches_the_terminal_as_a_command(receiver: Receiver, stack: Stack) -> None:
    """An error's text may hold control sequences, and look like rich's own markup."""
    text = "\x1b]0;owned\x07 [red]not markup[/red] \x9b2J"
    stack.record("evil", "FAILED", error=Failure(type="E", text=text).to_json())
    shown = receiver(f"show evil {ON}").out
    assert "[red]not markup[/red]" in shown
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
