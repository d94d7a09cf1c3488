"""The ends of a dead letter as people get them wrong: a clear error, nothing lost, and no body where none belongs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, STAMP
from tests.unit.operations.cli.stack import CLOSED, CONFLICT, DONE, FLAKY, client

if TYPE_CHECKING:
    from tests.unit.operations.cli.stack import Receiver, Stack

ON = ("--stack", "transfers")
DEAD = {DONE, FLAKY, CLOSED, CONFLICT}
SECRET = "4929-1234-5678-9012"


def acts(receiver: Receiver) -> list[Any]:
    """All that the history has."""
    return list(receiver("dlq", "history", *ON, "--json").json["acts"])


@pytest.mark.parametrize("name", ["archive", "restore"])
def test_a_bucket_that_does_not_exist_is_named_before_anything_is_done(
    receiver: Receiver, stack: Stack, name: str
) -> None:
    ran = receiver("dlq", name, *ON, "--archive", "nosuch", "--yes")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "there is no bucket nosuch in this account and region: correct --archive" in ran.err
    assert acts(receiver) == []
    assert stack.keys_in(stack.dead) == DEAD


@pytest.mark.parametrize("name", ["archive", "restore"])
def test_a_stack_without_an_archive_says_what_to_give(receiver: Receiver, stack: Stack, name: str) -> None:
    del stack.outputs["ArchiveBucket"]
    ran = receiver("dlq", name, *ON, "--yes")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "stack transfers has no output ArchiveBucket: give --archive" in ran.err


def test_what_is_no_dead_letter_in_the_archive_is_named_without_a_traceback(receiver: Receiver, stack: Stack) -> None:
    assert receiver("dlq", "archive", *ON, "--yes").code == Exit.OK
    client("s3").put_object(Bucket="archive", Key="transfers-dead/notes.json", Body=b"not mine")
    ran = receiver("dlq", "restore", *ON, "--yes")
    assert (ran.code, ran.out) == (Exit.AWS, "")
    assert "s3://archive/transfers-dead/notes.json is no archived dead letter: move it elsewhere" in ran.err
    assert stack.keys_in(stack.dead) == set()


def test_what_others_keep_in_the_same_bucket_is_not_restored(receiver: Receiver, stack: Stack) -> None:
    client("s3").put_object(Bucket="archive", Key="transfers-dead-2/notes.json", Body=b"not mine")
    assert receiver("dlq", "archive", *ON, "--yes").code == Exit.OK
    assert receiver("dlq", "restore", *ON, "--yes").code == Exit.OK
    assert stack.keys_in(stack.dead) == DEAD


BODIES: dict[str, tuple[bytes | None, str]] = {
    "a folder": (None, "Is a directory"),
    "empty": (b"", "is empty, and SQS takes no empty message"),
    "only a byte order mark": (b"\xef\xbb\xbf", "is empty, and SQS takes no empty message"),
    "2 MiB": (b"x" * 2 * MOST_BYTES, "is larger than SQS's 1 MiB"),
    "binary": (b"\x89PNG\r\n", "is not text in UTF-8, and SQS takes no other"),
    "UTF-16": ("{}".encode("utf-16"), "is not text in UTF-8, and SQS takes no other"),
    "a control character": (b'{"a":\n "\x00"}', "has the character U+0000 in line 2, and SQS takes none"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_sqs_does_not_take_is_refused_before_anything_is_done(
    receiver: Receiver, stack: Stack, kind: str
) -> None:
    written, said = BODIES[kind]
    file = Path("new")
    file.mkdir() if written is None else file.write_bytes(written)
    ran = receiver("dlq", "resend", *ON, "--key", FLAKY, "--body", "new", "--yes")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert f"--body new: {said}" in ran.err or f"--body new {said}" in ran.err
    assert stack.keys_in(stack.dead) == DEAD


def test_a_byte_order_mark_is_no_part_of_the_body(receiver: Receiver, stack: Stack) -> None:
    """Editors write it, and no JSON reader takes it."""
    Path("new").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert receiver("dlq", "resend", *ON, "--key", FLAKY, "--body", "new", "--yes").code == Exit.OK
    (sent,) = stack.sqs.receive_message(QueueUrl=stack.queue)["Messages"]
    assert sent["Body"] == '{"a": 1}'


def test_a_body_without_room_for_its_stamp_stays(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_bytes(b"x" * MOST_BYTES)
    ran = receiver("dlq", "resend", *ON, "--key", FLAKY, "--body", "new", "--yes", "--json")
    assert (ran.code, ran.json["resent"]) == (Exit.LEFT, 0)
    assert [each["why"] for each in ran.json["left"]] == ["SQS refused its copy: NoRoom"]
    assert stack.keys_in(stack.dead) == DEAD


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--all",), "--reason is missing"),
        (("--all", "--reason", ""), "--reason is missing"),
        (("--all", "--reason", " \t\n"), "--reason is missing"),
        (("--reason", "a test"), "--reason tells why, not which"),
        (("--reason", "a test", "--limit", "1"), "--reason tells why, not which"),
        (("--reason", "a test", "--all", "--group", "done"), "--all means every dead letter: it takes no filter"),
        (("--reason", "a test", "--all", "--plan", "plan.json"), "--all means every dead letter: it takes no filter"),
        (("--reason", "a test", "--group", ""), "--group is empty"),
    ],
)
def test_a_deletion_without_a_reason_and_a_choice_deletes_nothing(
    receiver: Receiver, stack: Stack, given: tuple[str, ...], said: str
) -> None:
    ran = receiver("dlq", "delete", *ON, *given, "--yes")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert said in ran.err
    assert stack.keys_in(stack.dead) == DEAD


def test_a_plan_to_archive_deletes_nothing(receiver: Receiver, stack: Stack) -> None:
    assert receiver("dlq", "archive", *ON, "--save-plan", "plan.json").code == Exit.OK
    ran = receiver("dlq", "delete", *ON, "--plan", "plan.json", "--reason", "a test", "--yes")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "--plan plan.json was made by dlq archive: it is no plan for dlq delete" in ran.err
    assert stack.keys_in(stack.dead) == DEAD


ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "\U0001f600 & <b>"},
    "number": {"DataType": "Number", "StringValue": "1.50"},
    "binary": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    "custom": {"DataType": "Binary.png", "BinaryValue": b"\x89PNG"},
}


def test_a_message_comes_back_from_the_archive_to_the_byte(receiver: Receiver, stack: Stack) -> None:
    """Its escapes, its white space, and attributes of every type."""
    body = '{"a":  "\\ud83d \\u0000 \\\\ \U0001f600",\r\n\t"b": 1.50}'
    stamp = {"DataType": "String", "StringValue": json.dumps({"key": "k", "original_id": "k", "queue": stack.arn})}
    stack.sqs.send_message(QueueUrl=stack.dead, MessageBody=body, MessageAttributes={**ATTRIBUTES, STAMP: stamp})
    assert receiver("dlq", "archive", *ON, "--key", "k", "--yes").code == Exit.OK
    assert receiver("dlq", "restore", *ON, "--yes").code == Exit.OK

    assert receiver("dlq", "redrive", *ON, "--key", "k", "--yes").code == Exit.OK

    (sent,) = stack.sqs.receive_message(QueueUrl=stack.queue, MessageAttributeNames=["All"])["Messages"]
    found = sent["MessageAttributes"]
    assert sent["Body"] == body
    assert {name: found[name] for name in ATTRIBUTES} == ATTRIBUTES
    assert json.loads(found[STAMP]["StringValue"])["key"] == "k"


@pytest.mark.parametrize("form", ["--json", "for people"])
def test_no_end_tells_what_is_in_a_body_or_an_attribute(
    receiver: Receiver, stack: Stack, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an export does, on purpose."""
    attribute = {"DataType": "String", "StringValue": SECRET}
    for key in ("one", "two", "three"):
        stamp = {"DataType": "String", "StringValue": json.dumps({"key": key, "original_id": key, "queue": stack.arn})}
        stack.sqs.send_message(
            QueueUrl=stack.dead, MessageBody=SECRET, MessageAttributes={"card": attribute, STAMP: stamp}
        )
    Path("new").write_text(f"new {SECRET}")
    as_asked = (form,) if form == "--json" else ()
    said = ""
    for line in (
        ("export", "letters.jsonl"),
        ("archive", "--save-plan", "plan.json"),
        ("archive", "--plan", "plan.json", "--reason", "INC-7", "--yes"),
        ("restore", "--yes"),
        ("resend", "--key", "one", "--body", "new", "--yes"),
        ("delete", "--key", "two", "--reason", "a test", "--yes"),
        ("delete", "--all", "--reason", "a test"),
        ("history",),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO())
        ran = receiver("dlq", *line, *ON, *as_asked)
        assert ran.code in (Exit.OK, Exit.LEFT), ran.err
        said += ran.out + ran.err
    said += Path("plan.json").read_text()
    said += json.dumps(client("dynamodb").scan(TableName="history")["Items"])
    assert "one" in said
    assert SECRET not in said
    assert Path("letters.jsonl").read_text().count(SECRET) == 6


def test_the_history_keeps_the_new_key_however_long_the_reason_is(receiver: Receiver, stack: Stack) -> None:
    given = ("--key", FLAKY, "--body", "body.json", "--reason", "because " * 200, "--yes", "--json")
    new_key = receiver("dlq", "resend", *ON, *given).json["new_key"]
    (act,) = acts(receiver)
    assert new_key in act["why"]
    assert "because" in act["why"]


def test_a_second_body_for_what_was_sent_already_is_warned_of(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command ended between the send and the deletion: it may run, and so would the second body."""
    Path("other.json").write_text("another body")
    given = ("dlq", "resend", *ON, "--key", FLAKY, "--yes")
    with monkeypatch.context() as undeletable:
        undeletable.setattr(DeadLetterQueue, "delete", lambda self, ids: dict.fromkeys(ids, "InternalError"))
        assert receiver(*given, "--body", "body.json").code == Exit.LEFT

    with monkeypatch.context() as declined:
        declined.setattr("sys.stdin", io.StringIO())
        assert "with another body" not in receiver(*given[:-1], "--body", "body.json").err
        said = receiver(*given[:-1], "--body", "other.json").err
    assert "sent a dead letter of this key with another body (done). If it was this one, both run" in said


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"status": {"S": "COMPLETED"}}, "it is done already"),
        (
            {"status": {"S": "INPROGRESS"}, "in_progress_expiration": {"N": "9999999999000"}},
            "a worker holds its claim, and may do it as it is",
        ),
    ],
    ids=["done, of a payload that its record does not tell", "claimed"],
)
def test_what_is_done_or_may_be_done_as_it_is_is_not_resent(
    receiver: Receiver, stack: Stack, record: dict[str, Any], why: str
) -> None:
    Path("new").write_text("{}", "utf-8")
    item = {"id": {"S": FLAKY}, "version": {"S": "v"}, "expiration": {"N": "9999999999"}, **record}
    stack.dynamodb.put_item(TableName="records", Item=item)
    ran = receiver("dlq", "resend", *ON, "--key", FLAKY, "--body", "new", "--yes")
    assert (ran.code, why in ran.err, acts(receiver)) == (Exit.USAGE, True, [])
    assert stack.keys_in(stack.dead) == DEAD


def test_a_new_key_that_was_used_for_another_payload_is_refused(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("new").write_text("{}", "utf-8")
    given = ("dlq", "resend", *ON, "--key", FLAKY, "--body", "new")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    key = receiver(*given, "--json").json["new_key"]
    stack.record(key, "COMPLETED", "another body")
    ran = receiver(*given, "--yes")
    assert (ran.code, acts(receiver)) == (Exit.USAGE, [])
    assert f"the key {key} of the new body was used for another payload: give it another" in ran.err
    assert stack.keys_in(stack.dead) == DEAD
