"""The ends of a dead letter as people get them wrong: a clear error, nothing lost, and no body where none belongs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, STAMP
from tests.unit.operations.cli.stack import DEAD, FLAKY, SECRET, Receiver, Stack, client

RESEND = f"dlq resend --key {FLAKY} --body new"


def test_what_is_no_dead_letter_in_the_archive_is_named_without_a_traceback(receiver: Receiver, stack: Stack) -> None:
    assert receiver.on("dlq archive --yes").code == Exit.OK
    client("s3").put_object(Bucket="archive", Key="transfers-dead/notes.json", Body=b"not mine")
    ran = receiver.on("dlq restore --yes")
    assert (ran.code, ran.out) == (Exit.AWS, "")
    assert "s3://archive/transfers-dead/notes.json is no archived dead letter: move it elsewhere" in ran.err
    assert stack.keys_in(stack.dead) == set()


def test_what_others_keep_in_the_same_bucket_is_not_restored(receiver: Receiver, stack: Stack) -> None:
    client("s3").put_object(Bucket="archive", Key="transfers-dead-2/notes.json", Body=b"not mine")
    assert [receiver.on(f"dlq {each} --yes").code for each in ("archive", "restore")] == [Exit.OK, Exit.OK]
    assert stack.keys_in(stack.dead) == DEAD


def test_a_byte_order_mark_is_no_part_of_the_body(receiver: Receiver, stack: Stack) -> None:
    """Editors write it, and no JSON reader takes it."""
    Path("new").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert receiver.on(f"{RESEND} --yes").code == Exit.OK
    assert [each["Body"] for each in stack.received(stack.queue)] == ['{"a": 1}']


def test_a_body_without_room_for_its_stamp_stays(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_bytes(b"x" * MOST_BYTES)
    ran = receiver.on(f"{RESEND} --yes --json")
    assert (ran.code, ran.json["resent"]) == (Exit.LEFT, 0)
    assert [each["why"] for each in ran.json["left"]] == ["SQS refused its copy: NoRoom"]
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
    stack.bury("k", body, attributes=ATTRIBUTES)
    for line in ("archive --key k", "restore", "redrive --key k"):
        assert receiver.on(f"dlq {line} --yes").code == Exit.OK

    (sent,) = stack.received(stack.queue)
    found = sent["MessageAttributes"]
    assert sent["Body"] == body
    assert {name: found[name] for name in ATTRIBUTES} == ATTRIBUTES
    assert json.loads(found[STAMP]["StringValue"])["key"] == "k"


@pytest.mark.parametrize("form", ["--json", ""])
def test_no_end_tells_what_is_in_a_body_or_an_attribute(receiver: Receiver, stack: Stack, form: str) -> None:
    """Only an export does, on purpose."""
    for key in ("one", "two", "three"):
        stack.bury(key, SECRET, attributes={"card": {"DataType": "String", "StringValue": SECRET}})
    Path("new").write_text(f"new {SECRET}")
    said = ""
    for line in (
        "export letters.jsonl",
        "archive --save-plan plan.json",
        "archive --plan plan.json --reason INC-7 --yes",
        "restore --yes",
        "resend --key one --body new --yes",
        "delete --key two --reason test --yes",
        "delete --all --reason test",
        "history",
    ):
        ran = receiver.on(f"dlq {line} {form}")
        assert ran.code in (Exit.OK, Exit.LEFT), ran.err
        said += ran.out + ran.err
    said += Path("plan.json").read_text() + str(stack.acts)
    assert "one" in said
    assert SECRET not in said
    assert Path("letters.jsonl").read_text().count(SECRET) == 6


def test_the_history_keeps_the_new_key_however_long_the_reason_is(receiver: Receiver, stack: Stack) -> None:
    reason = "because " * 200
    new_key = receiver.on(f"dlq resend --key {FLAKY} --body body.json --reason '{reason}' --yes --json").json["new_key"]
    (act,) = stack.acts
    assert [each for each in (new_key, "because") if each not in act["why"]] == []


def test_a_second_body_for_what_was_sent_already_is_warned_of(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command ended between the send and the deletion: it may run, and so would the second body."""
    Path("new").write_text("another body")
    first = f"dlq resend --key {FLAKY} --body body.json"
    with monkeypatch.context() as undeletable:
        undeletable.setattr(DeadLetterQueue, "delete", lambda self, ids: dict.fromkeys(ids, "InternalError"))
        assert receiver.on(f"{first} --yes").code == Exit.LEFT

    assert "with another body" not in receiver.on(first).err
    assert "sent a dead letter of this key with another body (done). If it was this one, both run" in (
        receiver.on(RESEND).err
    )


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
    ran = receiver.on(f"{RESEND} --yes")
    assert (ran.code, why in ran.err, stack.untouched()) == (Exit.USAGE, True, True)


def test_a_new_key_that_was_used_for_another_payload_is_refused(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text("{}", "utf-8")
    key = receiver.on(f"{RESEND} --json").json["new_key"]
    stack.record(key, "COMPLETED", "another body")
    ran = receiver.on(f"{RESEND} --yes")
    assert (ran.code, stack.untouched()) == (Exit.USAGE, True)
    assert f"the key {key} of the new body was used for another payload: give it another" in ran.err
