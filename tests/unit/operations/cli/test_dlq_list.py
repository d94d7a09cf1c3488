"""`receiver dlq list`: dead letters in groups, chosen by filters."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from idempotent_receiver import message_id
from idempotent_receiver.operations.cli import dlq_report, terminal
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.triage import Rules, triage
from idempotent_receiver.sqs.dead_letter import STAMP, Stamp
from tests.unit.operations.cli.stack import CLOSED, CONFLICT, DONE, FLAKY, LONG_AGO_MS, Receiver, Stack


def test_list_groups_by_error_and_gives_back_what_it_took(receiver: Receiver, stack: Stack) -> None:
    told = receiver("dlq", "list", "--stack", "transfers", "--json").json
    groups = {group["name"]: (group["reasons"], [each["key"] for each in group["letters"]]) for group in told["groups"]}
    assert groups == {
        "ConnectionError@app.ledger": ({"ConnectionError at app.ledger:7": 1}, [FLAKY]),
        "FingerprintMismatch": ({"its key was used for another payload": 1}, [CONFLICT]),
        "PermanentError": ({"account closed": 1}, [CLOSED]),
        "done": ({"done: its acknowledgement was lost, or it was delivered once more": 1}, [DONE]),
    }
    assert (told["letters"], told["about"], told["sample"]) == (4, 4, False)
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CONFLICT, CLOSED}


def test_a_groups_screen_tells_what_is_in_it_and_its_name_lists_its_letters(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a text nor a line makes another group, and both are told within it."""
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(9):
        text, line = ("answered 402", 20) if number % 3 == 0 else ("answered 503", 21)
        stack.bury(f"m-{number}", "b", reason=text, error_type="HTTPError", at=f"app.gateway.charge:{line}")
    flags = ("--stack", "transfers", "--error-type", "HTTPError")
    (told,) = receiver("dlq", "list", *flags, "--json").json["groups"]
    assert (told["name"], told["count"], told["verdicts"]) == ("HTTPError@app.gateway.charge", 9, {"PERMANENT": 9})
    assert told["reasons"] == {"answered 503": 6, "answered 402": 3}

    shown = receiver("dlq", "list", *flags).out
    assert [line.strip() for line in shown.splitlines()[:2]] == ["count  group", "9  HTTPError@app.gateway.charge"]
    assert f"{told['first_seen']}" in shown
    assert "9 PERMANENT" in shown
    assert f"for example {told['letters'][-1]['key']}" in shown
    assert "6 x answered 503" in shown
    assert "3 x answered 402" in shown
    assert sum(f"m-{number}" in shown for number in range(9)) == 1, "an example, and no list"

    letters = receiver("dlq", "list", "--stack", "transfers", "--group", "HTTPError@app.gateway.charge").out
    assert all(re.search(rf"(?m)^m-{number} ", letters) for number in range(9))
    assert FLAKY not in letters
    (one, *_) = told["letters"]
    assert one["message_id"] in receiver("dlq", "list", "--stack", "transfers", "--message-id", one["message_id"]).out


def decided(group: str, count: int) -> dict[str, Any]:
    """A group of dead letters of one cause, each with a text of its own."""
    reader = Reader(queue_arn="arn:aws:sqs:us-east-1:123456789012:transfers", key=message_id, record_id=str)
    letters = []
    for number in range(count):
        stamp = Stamp(
            key=f"5f2c1d64-{number:04}-4000-8000-000000000001",
            original_id="m",
            reason=f"account {number} of a customer who has many of them\ncannot pay {number} EUR",
            error_type=group,
            at="app.transfers.ledger.post_entries:17",
        )
        attribute = {STAMP: {"DataType": "String", "StringValue": stamp.to_json()}}
        raw = {"MessageId": f"m-{number}", "ReceiptHandle": "r", "Body": "b", "Attributes": {}}
        read = reader.read({**raw, "MessageAttributes": attribute}, LONG_AGO_MS)
        letters.append(triage(read, None, LONG_AGO_MS, Rules(queue_arn=reader.queue_arn)))
    ((name, found),) = dlq_report.grouped(letters).items()
    return dlq_report.group_values(name, found, bodies=False)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 13, 20, 21, 22, 60])
def test_the_groups_fit_a_screen_however_many_letters_there_are(count: int) -> None:
    groups = [decided(f"Error{number}", 300 if number == 0 else 1) for number in range(count)]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(dlq_report.group_tables(groups))
    lines = console.export_text().splitlines()
    assert len(lines) <= 24
    names = [each["name"] for each in groups]
    assert [name for name in names if f"  {name}" in {line[5:].rstrip() for line in lines}] == names[:21]
    assert ("which --json lists" in " ".join(lines)) is (count > 21)
    if count <= 7:
        assert sum("account" in line for line in lines) >= count, "the reason of each"


def test_bodies_are_shown_only_when_asked_for(receiver: Receiver) -> None:
    for flag in ((), ("--json",)):
        assert "conflict\n" not in receiver("dlq", "list", "--stack", "transfers", *flag).out.replace(" ", "")
    without = receiver("dlq", "list", "--stack", "transfers", "--json")
    assert '"body"' not in without.out
    shown = receiver("dlq", "list", "--stack", "transfers", "--json", "--bodies").json
    assert {each["body"] for group in shown["groups"] for each in group["letters"]} == {
        "done",
        "flaky",
        "conflict",
        "closed",
    }


def test_a_sample_is_called_one(receiver: Receiver, stack: Stack) -> None:
    for number in range(25):
        stack.bury(f"m-{number}", "b")
    ran = receiver("dlq", "list", "--stack", "transfers", "--limit", "10", "--json")
    assert "This is a sample: 10 of about 29" in ran.err
    assert ran.json["sample"] is True
    assert len(stack.keys_in(stack.dead)) == 29


def test_the_dead_letter_queue_is_found_by_the_queues_own_policy(receiver: Receiver) -> None:
    flags = ("--queue", "transfers", "--table", "records", "--key-strategy", "message_id", "--json")
    assert receiver("dlq", "list", *flags).json["letters"] == 4


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes")], ids=" ".join)
@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (("--group", "PermanentError"), {CLOSED}),
        (("--group", "PermanentError", "--group", "done"), {CLOSED, DONE}),
        (("--error-type", "ConnectionError"), {FLAKY}),
        (("--key", FLAKY, "--key", DONE, "--group", "done"), {DONE}),
        (("--since", "1h"), {DONE, FLAKY, CONFLICT, CLOSED}),
        (("--since", "2023-01-01", "--until", "2200-01-01T00:00+02:00"), {DONE, FLAKY, CONFLICT, CLOSED}),
    ],
)
def test_what_is_selected_is_meant_by_each_command_alike(
    receiver: Receiver, command: tuple[str, ...], given: tuple[str, ...], keys: set[str]
) -> None:
    told = receiver("dlq", *command, *given, "--stack", "transfers", "--json").json
    listed = [each["key"] for group in told.get("groups", []) for each in group["letters"]]
    acted = told.get("moved", 0) + told.get("dropped", 0) + len(told.get("left", []))
    assert (set(listed), acted) == ((keys, 0) if command == ("list",) else (set(), len(keys)))


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes")], ids=" ".join)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--group", "nosuch"), "in the group nosuch."),
        (("--group", "b", "--group", "a"), "in the group a or b."),
        (("--error-type", "nosuch"), "of the error type nosuch."),
        (("--since", "2200-01-01"), "sent since 2200-01-01T00:00:00Z."),
        (("--until", "2023-01-01T01:00+02:00"), "sent until 2022-12-31T23:00:00Z."),
        (
            ("--since", "2022-01-01", "--until", "2023-01-01"),
            "sent since 2022-01-01T00:00:00Z and until 2023-01-01T00:00:00Z.",
        ),
        (("--key", "k", "--reason", "r"), 'of the key k with "r" in their reason or error type.'),
    ],
)
def test_where_nothing_is_what_was_meant_that_is_named_and_is_not_found(
    receiver: Receiver, command: tuple[str, ...], given: tuple[str, ...], says: str
) -> None:
    ran = receiver("dlq", *command, *given, "--stack", "transfers")
    assert (ran.code, f"There are no visible dead letters {says}" in ran.out) == (terminal.Exit.LEFT, True)


def test_where_nothing_is_in_the_archive_the_archive_is_named(receiver: Receiver) -> None:
    ran = receiver("dlq", "restore", "--group", "nosuch", "--stack", "transfers", "--yes")
    assert (ran.code, "There are no archived dead letters in the group nosuch." in ran.out) == (
        terminal.Exit.LEFT,
        True,
    )


def test_bodies_are_exported_for_the_operator_alone(receiver: Receiver) -> None:
    ran = receiver("dlq", "export", "letters.jsonl", "--stack", "transfers")
    exported = Path("letters.jsonl")
    assert (ran.code, len(exported.read_text("utf-8").splitlines())) == (terminal.Exit.OK, 4)
    assert exported.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("command", ["list", "redrive"])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--since", "yesterday"), "--since yesterday is no time: give a time such as 2026-11-22T02:00Z (UTC if it"),
        (("--until", "2026-13-01"), "--until 2026-13-01 is no time"),
        (("--until", "0001-01-01T00:00+02:00"), "--until 0001-01-01T00:00+02:00 is no time"),
        (("--since", "-2h"), "--since -2h is no time"),
        (("--since", "2 h"), "--since 2 h is no time"),
        (("--since", "999999d"), "--since 999999d is no time"),
        (("--since", "1h", "--until", "2h"), "--until 2h is before --since 1h"),
        (("--group", ""), "--group is empty: give it a value, or leave it out"),
        (("--key", "k", "--key", ""), "--key is empty: give it a value, or leave it out"),
        (("--reason", ""), "--reason is empty: give it a value, or leave it out"),
        (("--since", ""), "--since is empty: give it a value, or leave it out"),
    ],
)
def test_what_selects_nothing_by_mistake_is_refused(
    receiver: Receiver, stack: Stack, command: str, given: tuple[str, ...], says: str
) -> None:
    ran = receiver("dlq", command, "--stack", "transfers", *given)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.err
    assert len(stack.keys_in(stack.dead)) == 4
