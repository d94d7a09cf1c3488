"""`receiver dlq list`: dead letters in groups, chosen by filters."""

from __future__ import annotations

import io
import json
import re
import signal
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import EndpointConnectionError
from rich.console import Console

from idempotent_receiver import message_id
from idempotent_receiver.operations.cli import dlq_list, dlq_report, terminal
from idempotent_receiver.operations.dead_letters import queue
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, triage
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.operations.cli.stack import ARN, CLOSED, DEAD, DONE, FLAKY, LONG_AGO_MS, Receiver, Stack, answered

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_groups_screen_tells_what_is_in_it_and_its_name_lists_its_letters(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a text nor a line makes another group, and both are told within it."""
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(9):
        text, line = ("answered 402", 20) if number % 3 == 0 else ("answered 503", 21)
        stack.bury(f"m-{number}", reason=text, error_type="HTTPError", at=f"app.gateway.charge:{line}")
    (told,) = receiver.on("dlq list --error-type HTTPError --json").json["groups"]
    assert (told["name"], told["count"], told["verdicts"]) == ("HTTPError@app.gateway.charge", 9, {"PERMANENT": 9})
    assert told["reasons"] == {"answered 503": 6, "answered 402": 3}

    shown = receiver.on("dlq list --error-type HTTPError").out
    assert [line.split() for line in shown.splitlines()[:2]] == [["count", "group"], ["9", told["name"]]]
    expected = (told["first_seen"], "9 PERMANENT", "for example m-", "6 x answered 503")
    assert [each for each in (*expected, "3 x answered 402") if each not in shown] == []
    assert sum(f"m-{number}" in shown for number in range(9)) == 1, "an example, and no list"

    letters = receiver.on("dlq list --group HTTPError@app.gateway.charge").out
    assert all(re.search(rf"(?m)^m-{number} ", letters) for number in range(9))
    assert re.search(r"(?m)^key +since +verdict$", letters)
    assert FLAKY not in letters
    (one, *_) = told["letters"]
    assert one["message_id"] in receiver.on(f"dlq list --message-id {one['message_id']}").out


def decision(body: str, error_type: str, number: int = 0) -> Decision:
    """A dead letter with a text of its own."""
    stamp = Stamp(
        key=f"5f2c1d64-{number:04}-4000-8000-000000000001",
        original_id="m",
        reason=f"account {number} of a customer who has many of them\ncannot pay {number} EUR",
        error_type=error_type,
        at="app.transfers.ledger.post_entries:17",
        queue=f"{ARN}:transfers",
    )
    raw = {"MessageId": f"m-{number}", "ReceiptHandle": "r", "Body": body, "Attributes": {}, "MD5OfBody": ""}
    attribute = {STAMP: {"DataType": "String", "StringValue": stamp.to_json()}}
    reader = Reader(queue_arn=f"{ARN}:transfers", key=message_id, record_id=str)
    read = reader.read({**raw, "MessageAttributes": attribute}, LONG_AGO_MS)
    return triage(read, None, LONG_AGO_MS, Rules(queue_arn=reader.queue_arn))


def decided(group: str, count: int) -> dict[str, Any]:
    """A group of dead letters of one cause."""
    letters = [decision("b", group, number) for number in range(count)]
    (found,) = dlq_report.grouped([dlq_report.letter_values(each, bodies=False) for each in letters])
    return found


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
    assert "conflict\n" not in receiver.on("dlq list").out.replace(" ", "")
    assert '"body"' not in receiver.on("dlq list --json").out
    shown = receiver.on("dlq list --json --bodies").json
    bodies = {each["body"] for group in shown["groups"] for each in group["letters"]}
    assert bodies == {"done", "flaky", "conflict", "closed"}


def test_a_sample_is_called_one(receiver: Receiver, stack: Stack) -> None:
    for number in range(25):
        stack.bury(f"m-{number}")
    ran = receiver.on("dlq list --limit 10 --json")
    assert ran.json["sample"] is True
    assert len(stack.keys_in(stack.dead)) == 29


# In a file.


def test_a_line_is_a_whole_letter_and_the_file_is_the_operators_alone(receiver: Receiver, stack: Stack) -> None:
    ran, file = receiver.on("dlq list --out letters.jsonl --bodies --json"), Path("letters.jsonl")
    assert (ran.code, file.stat().st_mode & 0o777) == (terminal.Exit.OK, 0o600)
    assert (ran.json["count"], ran.json["file"], ran.json["acts"]) == (4, "letters.jsonl", None)
    letters = {each["key"]: each for each in map(json.loads, file.read_text("utf-8").splitlines())}
    assert letters.keys() == DEAD
    flaky = letters[FLAKY]
    assert (flaky["message"]["body"], flaky["verdict"], flaky["record"]["status"]) == ("flaky", "MOVE", "FAILED")
    assert stack.keys_in(stack.dead) == DEAD


@pytest.mark.parametrize("name", ["letters.jsonl", "letters.html"])
def test_no_file_is_ever_replaced_and_nobody_holds_a_letter_for_that(
    receiver: Receiver, stack: Stack, name: str
) -> None:
    Path(name).write_text("mine")
    ran = receiver.on(f"dlq list --out {name}")
    assert ran.code == terminal.Exit.USAGE
    assert (Path(name).read_text(), list(Path().glob(".*"))) == ("mine", [])
    received = {
        each["Attributes"]["ApproximateReceiveCount"] for each in stack.received(stack.dead, AttributeNames=["All"])
    }
    assert received == {"1"}


def fail_at_the_second(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """After the first batch, of ten, `what` happens."""
    take = Session.take

    def taken(self: Any, most: int, stopped: Any) -> Any:
        if self.source.seen:
            what()
        return take(self, min(most, 10), stopped)

    monkeypatch.setattr(Session, "take", taken)


def lost() -> None:
    raise EndpointConnectionError(endpoint_url="https://sqs.us-east-1.amazonaws.com")


def full() -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["letters.jsonl", "letters.html"])
@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        (lost, terminal.Exit.AWS, "Could not connect"),
        (full, terminal.Exit.USAGE, ": No space left on device"),
        (lambda: signal.raise_signal(signal.SIGINT), terminal.Exit.STOPPED, " was not written."),
        ("written meanwhile", terminal.Exit.USAGE, " exists and is never replaced"),
    ],
    ids=["lost", "full", "stopped", "taken"],
)
def test_what_fails_half_way_leaves_no_half_file_and_holds_no_letter(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch, *, name: str, what: Any, code: int, says: str
) -> None:
    for number in range(16):
        stack.bury(f"m-{number}")
    fail_at_the_second(monkeypatch, what if callable(what) else lambda: Path(name).write_text(what))
    ran = receiver.on(f"dlq list --out {name} --bodies")
    assert (ran.code, says in ran.err, "Traceback" in ran.err) == (code, True, False)
    assert [each.read_text() for each in Path().glob("*letters*")] == ([] if callable(what) else [what])
    assert len(stack.keys_in(stack.dead)) == 20


class Body(str):
    """A body that can be asked whether it is still there."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("name", ["letters.jsonl", "letters.html"])
def test_no_body_is_kept_once_it_is_written(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A hundred letters of a megabyte would be a gigabyte of text, attributes and JSON."""
    made: list[weakref.ref[Body]] = []

    def take(*_: Any) -> list[Decision]:
        assert sum(each() is not None for each in made) <= 1, "the last one, perhaps"
        bodies = [Body(f"body {len(made)}-{place}") for place in range(10 if len(made) < 50 else 0)]
        made.extend(map(weakref.ref, bodies))
        return [decision(each, "E") for each in bodies]

    monkeypatch.setattr(Session, "take", take)
    monkeypatch.setattr(DeadLetterQueue, "more", True)
    ran = receiver.on(f"dlq list --out {name} --bodies --json")
    assert (ran.json["count"], Path(name).read_text().count('"body": "body ')) == (50, 50)


def test_a_file_that_was_to_have_all_and_has_not_exits_with_1(receiver: Receiver, stack: Stack) -> None:
    stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=1, VisibilityTimeout=600)
    ran = receiver.on("dlq list --out letters.jsonl --json")
    assert (ran.code, ran.json["count"], ran.json["held_elsewhere"]) == (terminal.Exit.LEFT, 3, 1)
    assert "This is a sample" not in ran.err, "the other one is held, and no limit hides it"
    assert receiver.on("dlq list --out three.jsonl --limit 3").code == terminal.Exit.OK


@pytest.mark.parametrize("out", ["", "--out letters.jsonl", "--out letters.html"])
def test_a_list_that_ends_early_says_that_holds_ran_out(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """SQS lets only so many messages be in flight, and no --limit changes that."""
    for number in range(20):
        stack.bury(f"m-{number}")
    monkeypatch.setattr(queue, "MAX_HELD_STANDARD", 90)  # ten, less what all workers may receive at once
    ran = receiver.on(f"dlq list {out} --json")
    assert f"This is a sample: {ran.json['count']} of about 24 (holds ran out: SQS lets no more" in ran.err
    assert ran.code == (terminal.Exit.LEFT if "jsonl" in out else terminal.Exit.OK)


def test_a_list_whose_letters_come_back_before_the_rest_says_that_holds_ran_out(
    receiver: Receiver, stack: Stack
) -> None:
    """A hold that is too short for so many."""
    first = stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=1, VisibilityTimeout=0)
    with answered(lambda operation, arguments: first if operation == "ReceiveMessage" else None):
        ran = receiver.on("dlq list --out letters.jsonl --json")
    assert (ran.code, ran.json["count"]) == (terminal.Exit.LEFT, 1)
    assert "1 of about 4 (holds ran out: what was read came back before the rest: give a longer --hold)" in ran.said


def test_letters_are_letters_wherever_an_answer_names_them(receiver: Receiver, stack: Stack) -> None:
    """How many there are is a count."""
    told = receiver.on("dlq list --json").json
    assert (told.get("count"), "letters" in told) == (4, False)
    assert sum(len(group["letters"]) for group in told["groups"]) == 4
    assert receiver.on("dlq list --out letters.jsonl --json").json["count"] == 4
    assert receiver.on("dlq redrive --save-plan plan.json").code == terminal.Exit.OK
    assert len(json.loads(Path("plan.json").read_text())["letters"]) == 2


def test_what_selects_by_reason_is_named_where_a_group_has_several(receiver: Receiver, stack: Stack) -> None:
    for text in ("answered 402", "answered 503"):
        stack.bury(text, reason=text, error_type="HTTPError")
    for line in ("dlq list", "dlq list --group HTTPError"):
        assert "--matching TEXT selects by reason." in receiver.on(line).said
    for line in ("dlq list --group PermanentError", "dlq list --matching 503"):
        assert "--matching TEXT" not in receiver.on(line).said


@pytest.mark.parametrize("form", ["--json", "--out letters.jsonl --json", "--out letters.html --json"])
def test_the_limit_holds_for_every_form(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(dlq_list, "A_BATCH", 5)
    for number in range(20):
        stack.bury(f"m-{number}")
    ran = receiver.on(f"dlq list --limit 12 {form}")
    assert (ran.code, ran.json["count"], ran.json["about"], ran.json["sample"]) == (0, 12, 24, True)


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ("--group PermanentError", {CLOSED}),
        ("--group PermanentError --group done", {CLOSED, DONE}),
        ("--error-type ConnectionError", {FLAKY}),
        ("--matching connection", {FLAKY}),
        (f"--key {FLAKY} --key {DONE} --group done", {DONE}),
        ("--since 1h", DEAD),
        ("--since 2023-01-01 --until 2200-01-01T00:00+02:00", DEAD),
    ],
)
def test_what_is_selected_is_meant_by_each_command_alike(receiver: Receiver, given: str, keys: set[str]) -> None:
    listed = receiver.on(f"dlq list {given} --json").json["groups"]
    assert {each["key"] for group in listed for each in group["letters"]} == keys
    told = receiver.on(f"dlq redrive --yes {given} --json").json
    assert told["moved"] + told["dropped"] + len(told["left"]) == len(keys)
