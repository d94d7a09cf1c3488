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
from idempotent_receiver.operations.cli import records, terminal
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, from_attributes
from idempotent_receiver.testing import sqs_event
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.unit.operations.cli.stack import CLOSED, DONE, FLAKY, LASTING, STUCK, Receiver, Stack


def test_show_tells_what_a_record_says(receiver: Receiver) -> None:
    shown = receiver("show", FLAKY, "--table", "records").out
    for part in (FLAKY, "FAILED", "5", "ConnectionError at app.ledger:7"):
        assert part in shown
    told = receiver("show", DONE, "--table", "records", "--json").json
    assert (told["status"], told["result"], told["attempts"]) == ("COMPLETED", {"posted": "t-1"}, 1)


def test_show_tells_how_much_of_a_lease_is_left(receiver: Receiver, stack: Stack) -> None:
    until = SystemClock().epoch_ms() + 90_000
    stack.record("held", "INPROGRESS", "b", in_progress_expiration=until, owner="request-2")
    told = receiver("show", "held", "--table", "records", "--json").json
    assert 80 <= told["lease_left_seconds"] <= 90
    assert re.search(r"(?m)^lease +0:01:\d\d left, until ", receiver("show", "held", "--table", "records").out)


def test_a_lease_that_is_over_has_nothing_left(receiver: Receiver) -> None:
    shown = receiver("show", STUCK, "--table", "records").out
    assert re.search(r"(?m)^lease +over since 2023-11-14T22:13:20Z *$", shown)
    assert "left" not in shown


def test_the_verdicts_of_dead_letters_are_headed_as_such(receiver: Receiver) -> None:
    shown = receiver("dlq", "list", "--group", "done", "--stack", "transfers").out
    assert re.search(r"(?m)^key +since +verdict$", shown)


def test_when_a_record_was_written_is_not_said_to_be_in_the_future(receiver: Receiver, stack: Stack) -> None:
    """Where records last longer than is known, their end says nothing of their beginning."""
    written = datetime.now(UTC) - timedelta(days=1)
    closed = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
    stack.record(CLOSED, "FAILED", "b", error=closed, expiration=int(written.timestamp()) + 90 * 86_400)
    for key in (FLAKY, STUCK):
        stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})
    for command in (("show", CLOSED), ("stuck", "--yes")):
        assert '"written_about": null' in receiver(*command, "--table", "records", "--json").out
        assert re.search(f"written about:? +{records.UNDATED}", receiver(*command, "--table", "records").out)
        known = receiver(*command, "--table", "records", "--retention-days", "90").out
        assert records.UNDATED not in known
        assert f"{written:%Y-%m-%dT%H:%M:%SZ}" in known


def test_show_calls_expired_what_counts_as_absent(receiver: Receiver, stack: Stack) -> None:
    stack.record("old", "COMPLETED", "b", expiration=1_700_000_000)
    assert receiver("show", "old", "--table", "records", "--json").json["status"] == "EXPIRED"
    assert "EXPIRED (it was COMPLETED" in receiver("show", "old", "--table", "records").out


def test_show_knows_the_namespace(receiver: Receiver, stack: Stack) -> None:
    stack.record("bank#o-1", "COMPLETED", "b")
    assert receiver("show", "o-1", "--table", "records", "--namespace", "bank", "--json").json["id"] == "bank#o-1"
    ran = receiver("show", "o-1", "--table", "records", "--namespace", "shop")
    assert (ran.code, "There is no record shop#o-1" in ran.out) == (1, True)


def records_left(effects: str) -> dict[str, dict[str, Any]]:
    """What `show` says of the records of four messages, handled at one moment by one invocation."""
    clock, store = ManualClock(), MemoryStore(tables={"done": "id"})
    orphan = {
        "id": "orphaned",
        "status": "INPROGRESS",
        "version": "v",
        "attempts": 1,
        "owner": "dead",
        "expiration": LASTING,
    }
    store.items["orphaned"] = {**orphan, "in_progress_expiration": clock.epoch_ms() - 1}

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


@pytest.mark.parametrize("namespace", [(), ("--namespace", "bank")], ids=["all", "one"])
def test_show_takes_what_stuck_and_list_print(receiver: Receiver, stack: Stack, namespace: tuple[str, ...]) -> None:
    body = '{"id": "o-1"}'
    stack.record("bank#o-1", "FAILED", body, error=Failure(type="E").to_json())
    stack.bury("whatever", body)
    stuck = receiver("stuck", "--table", "records", "--yes", "--json", *namespace).json
    (printed,) = [each["key"] for each in stuck["failing"] if each["id"] == "bank#o-1"]
    assert printed in receiver("stuck", "--table", "records", "--yes", *namespace).out.split()
    assert receiver("show", printed, "--table", "records", *namespace, "--json").json["id"] == "bank#o-1"

    business = ("--stack", "transfers", "--key-strategy", "body_field:id", "--namespace", "bank")
    listed = receiver("dlq", "list", *business, "--json").json
    (printed,) = [each["key"] for group in listed["groups"] for each in group["letters"] if each["key"]]
    assert receiver("show", printed, *business, "--json").json["id"] == "bank#o-1"


def test_show_takes_a_whole_id_as_well_and_a_key_first(receiver: Receiver, stack: Stack) -> None:
    flags = ("--table", "records", "--namespace", "bank")
    stack.record("bank#o-1", "COMPLETED", "b")
    told = receiver("show", "bank#o-1", *flags, "--json").json
    assert (told["id"], told["key"]) == ("bank#o-1", "o-1")
    assert "There is no record bank#o-2 in" in receiver("show", "bank#o-2", *flags).out
    stack.record("bank#bank#o-1", "COMPLETED", "b")
    told = receiver("show", "bank#o-1", *flags, "--json").json
    assert (told["id"], told["key"]) == ("bank#bank#o-1", "bank#o-1")


def test_show_of_an_unknown_key_says_what_to_look_at(receiver: Receiver) -> None:
    ran = receiver("show", "nosuch", "--table", "records")
    remedy = "check --namespace. It may never have been claimed, or its record has expired."
    assert (ran.code, ran.out) == (terminal.Exit.LEFT, f"There is no record nosuch in records: {remedy}\n")


def test_show_refuses_an_empty_key(receiver: Receiver) -> None:
    ran = receiver("show", "", "--table", "records")
    assert (ran.code, ran.out, "KEY is empty" in ran.err) == (terminal.Exit.USAGE, "", True)


def test_nothing_that_others_wrote_reaches_the_terminal_as_a_command(receiver: Receiver, stack: Stack) -> None:
    """An error's text may hold control sequences, and look like rich's own markup."""
    text = "\x1b]0;owned\x07 [red]not markup[/red] \x9b2J"
    stack.record("evil", "FAILED", "b", error=Failure(type="E", text=text).to_json())
    shown = receiver("show", "evil", "--table", "records").out
    assert "[red]not markup[/red]" in shown
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
