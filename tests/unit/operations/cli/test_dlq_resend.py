"""`receiver dlq resend`, as people get it wrong: a clear error, nothing lost, and no body where none belongs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.dlq_resend import body_in
from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.protocol.resend import Resend
from idempotent_receiver.sqs.dead_letter import MOST_BYTES
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.operations.cli.stack import CONFLICT, DEAD, FLAKY, SECRET, Receiver, Stack, denied
from tests.unit.operations.dead_letters.acts import OPERATOR

RESEND = f"dlq resend --key {FLAKY} --body new"


def test_a_byte_order_mark_is_no_part_of_the_body(receiver: Receiver, stack: Stack) -> None:
    """Editors write it, and no JSON reader takes it."""
    Path("new").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert receiver.on(f"{RESEND} --yes").code == Exit.OK
    assert [each["Body"] for each in stack.received(stack.queue)] == ['{"a": 1}']


def test_a_body_of_a_mebibyte_is_taken_and_one_of_a_byte_more_is_refused(tmp_path: Path) -> None:
    """In bytes: é has two."""
    file = tmp_path / "new"
    file.write_text("é" * (MOST_BYTES // 2), "utf-8")
    assert len(body_in(file)) == MOST_BYTES // 2
    file.write_text("é" * (MOST_BYTES // 2) + "x", "utf-8")
    with pytest.raises(UsageError, match="exceeds SQS's limit of 1 MiB"):
        body_in(file)


@pytest.mark.parametrize("operation", ["PutItem", "ConditionCheckItem"])
def test_without_permission_to_write_records_nothing_is_sent_and_nothing_deleted(
    receiver: Receiver, stack: Stack, operation: str
) -> None:
    Path("new").write_text("{}", "utf-8")
    stack.forget(FLAKY)
    with denied(operation):
        ran = receiver.on(f"{RESEND} --yes --json")
    (left,) = ran.json["left"]
    assert (ran.code, left["outcome"], operation in left["why"]) == (Exit.LEFT, "refused", True)
    assert (stack.keys_in(stack.queue), stack.keys_in(stack.dead)) == (set(), DEAD)
    assert {each["outcome"] for each in stack.acts} == {"refused"}


def test_what_failed_for_good_and_is_older_than_records_last_is_sent_only_by_force(
    receiver: Receiver, stack: Stack
) -> None:
    """Another copy of it may have been done, and its record is gone."""
    stack.bury("old", "old", reason="account closed", first_received="2024-01-01T00:00:00+00:00")
    ran = receiver.on("dlq resend --key old --body body.json --yes --json")
    assert (ran.code, [each["verdict"] for each in ran.json["left"]]) == (Exit.LEFT, ["TOO_OLD"])
    assert receiver.on("dlq resend --key old --body body.json --force --yes").code == Exit.OK
    assert len(stack.received(stack.queue)) == 1


def test_a_resend_that_did_not_finish_is_listed_and_finished_without_its_file(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text("{}", "utf-8")
    with denied("SendMessageBatch"):
        ran = receiver.on(f"{RESEND} --yes --because 'a typo' --json")
    (left,) = ran.json["left"]
    assert (ran.code, left["outcome"]) == (Exit.LEFT, "unconfirmed")
    (group,) = receiver.on("dlq list --group resending --json").json["groups"]
    assert group["verdicts"] == {"UNSENT": 1}
    Path("new").write_text("{}\n", "utf-8")
    refused = receiver.on(f"{RESEND} --yes")
    assert (refused.code, "another body, of 2 characters, is going out as" in refused.said) == (Exit.USAGE, True)
    assert receiver.on(f"dlq delete --key {FLAKY} --because test --yes").code == Exit.LEFT
    Path("new").unlink()

    ran = receiver.on(f"dlq resend --key {FLAKY} --yes --json")

    assert (ran.code, ran.json["resent"], len(ran.json["acted"])) == (Exit.OK, 1, 1)
    assert receiver.on(f"dlq resend --key {FLAKY} --yes").code == Exit.LEFT, "there is nothing to finish"
    assert [each["Body"] for each in stack.received(stack.queue)] == ["{}"]
    assert stack.keys_in(stack.dead) == DEAD - {FLAKY}


def test_a_redrive_finishes_a_resend_and_its_history_names_both_keys(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text("{}", "utf-8")
    with denied("SendMessageBatch"):
        key = receiver.on(f"{RESEND} --yes --json").json["new_key"]
    ran = receiver.on(f"dlq redrive --key {FLAKY} --yes --json")
    assert (ran.code, ran.json["resent"], ran.json["moved"]) == (Exit.OK, 1, 0)
    assert {(each["key"], each["other"]) for each in stack.acts} == {(FLAKY, key), (key, FLAKY)}
    assert {each["verb"] for each in stack.acts} == {"resent"}
    assert stack.keys_in(stack.queue) == {key}


def test_stuck_send_finishes_a_resend_and_drops_its_dead_letter(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text("{}", "utf-8")
    with denied("SendMessageBatch"):
        receiver.on(f"{RESEND} --yes")
    ran = receiver.on(f"stuck --send {FLAKY} --yes --json")
    assert (ran.code, ran.json["sent"], ran.json.get("dropped")) == (Exit.OK, True, 1)
    assert [each["Body"] for each in stack.received(stack.queue)] == ["{}"]
    assert stack.keys_in(stack.dead) == DEAD - {FLAKY}
    assert ("dropped", "done") in {(each["verb"], each.get("outcome")) for each in stack.acts}


def test_giving_up_a_resend_keeps_its_dead_letter_and_says_so(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text("{}", "utf-8")
    with denied("SendMessageBatch"):
        receiver.on(f"{RESEND} --yes")
    ran = receiver.on(f"stuck --send {FLAKY} --give-up 1 --because unwanted --yes")
    assert (ran.code, "Its dead letter stays" in ran.said, "complete" in ran.said) == (Exit.OK, True, False)
    assert "but it was given up" in receiver.on(f"trace {FLAKY}").said
    redriven = receiver.on(f"dlq redrive --key {FLAKY} --yes")
    assert (redriven.code, "CONFLICT" in redriven.said) == (Exit.LEFT, True)
    assert receiver.on(f"dlq delete --key {FLAKY} --because unwanted --yes").code == Exit.OK
    assert (stack.keys_in(stack.dead), stack.received(stack.queue)) == (DEAD - {FLAKY}, [])


def test_the_plan_says_how_much_of_the_record_the_new_body_takes(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text(json.dumps({"a": "b" * 1000}), "utf-8")
    small = re.search(r"until SQS has confirmed it: (\d+) bytes of at most 408576", receiver.on(RESEND).said)
    assert small is not None
    assert 1000 < int(small[1]) < 2000
    Path("new").write_text("x" * 409_000, "utf-8")
    ran = receiver.on(f"{RESEND} --yes")
    assert (ran.code, "and 408576 fit" in ran.said, stack.untouched()) == (Exit.USAGE, True, True)


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
    for line in ("archive --key k", "redrive --from-archive --to-dlq", "redrive --key k"):
        assert receiver.on(f"dlq {line} --yes").code == Exit.OK

    (sent,) = stack.received(stack.queue)
    found = sent["MessageAttributes"]
    assert sent["Body"] == body
    assert {name: found[name] for name in ATTRIBUTES} == ATTRIBUTES
    assert json.loads(found[STAMP]["StringValue"])["key"] == "k"


@pytest.mark.parametrize("form", ["--json", ""])
def test_no_end_tells_what_is_in_a_body_or_an_attribute(receiver: Receiver, stack: Stack, form: str) -> None:
    for key in ("one", "two", "three"):
        stack.bury(key, SECRET, attributes={"card": {"DataType": "String", "StringValue": SECRET}})
    Path("new").write_text(f"new {SECRET}")
    said = ""
    for line in (
        "archive --save-plan plan.json",
        "archive --plan plan.json --because INC-7 --yes",
        "redrive --from-archive --to-dlq --yes",
        "resend --key one --body new --yes",
        "delete --key two --because test --yes",
        "delete --all --because test",
        "history",
    ):
        ran = receiver.on(f"dlq {line} {form}")
        assert ran.code in (Exit.OK, Exit.LEFT), ran.err
        said += ran.out + ran.err
    said += Path("plan.json").read_text() + str(stack.acts)
    assert "one" in said
    assert SECRET not in said


def test_the_history_keeps_the_new_key_however_long_the_reason_is(receiver: Receiver, stack: Stack) -> None:
    reason = "because " * 200
    told = receiver.on(f"dlq resend --key {FLAKY} --body body.json --because '{reason}' --yes --json").json
    new_key = told["new_key"]
    assert {each["key"]: each["other"] for each in stack.acts} == {FLAKY: new_key, new_key: FLAKY}
    assert all("because" in each["why"] for each in stack.acts)


def test_a_second_body_for_what_has_no_key_and_was_sent_already_is_warned_of(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command ended between the send and the deletion: it may run, and so would the second body."""
    Path("new").write_text("another body")
    line = f"dlq resend --key {CONFLICT} --body"
    with monkeypatch.context() as undeletable:
        undeletable.setattr(DeadLetterQueue, "delete", lambda self, ids: dict.fromkeys(ids, "InternalError"))
        assert receiver.on(f"{line} body.json --yes").code == Exit.LEFT

    assert "with another body" not in receiver.on(f"{line} body.json").err
    assert "sent a dead letter with this key but another body (done). If it was this one, both bodies will run" in (
        receiver.on(f"{line} new").err
    )


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"status": {"S": "COMPLETED"}}, "it has already completed"),
        (
            {"status": {"S": "INPROGRESS"}, "in_progress_expiration": {"N": "9999999999000"}},
            "a worker holds its claim and may still handle the old body",
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
    assert f"the new body's key {key} was used for another payload: give the body another" in ran.err


def test_a_new_key_whose_own_message_was_sent_again_is_refused(receiver: Receiver, stack: Stack) -> None:
    Path("new").write_text("{}", "utf-8")
    key = receiver.on(f"{RESEND} --json").json["new_key"]
    resend = Resend(new_id="third", operator=OPERATOR, why="the fix failed too")
    stack.record(key, "COMPLETED", "{}", owner="a worker", resent=resend.to_json())
    ran = receiver.on(f"{RESEND} --yes")
    assert (ran.code, stack.untouched()) == (Exit.USAGE, True)
    assert f"the new body's key {key} was itself resent, as third" in ran.err


def test_two_letters_with_one_new_key_are_refused_also_if_the_second_appears_later(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both messages would be one."""
    stack.bury(CONFLICT, "conflict 2")
    line = f"dlq resend --key {CONFLICT} --body body.json --yes"
    ran = receiver.on(line)
    assert (ran.code, "2 dead letters match, but resend takes one" in ran.err) == (Exit.USAGE, True)
    assert stack.acts == []

    take, held_back = DeadLetterQueue.take, list[Any]()

    def one_first(self: DeadLetterQueue, *rest: Any) -> list[Any]:
        taken = take(self, *rest)
        mine = [each for each in taken if "conflict" in each["Body"]]
        if mine and not held_back:
            held_back.extend(mine[1:])
            return [each for each in taken if each not in held_back]
        return [*taken, *held_back]

    monkeypatch.setattr(DeadLetterQueue, "take", one_first)
    monkeypatch.setattr(DeadLetterQueue, "more", True)
    receiver.on(line)
    assert len(stack.received(stack.queue)) == 1


END_OF_ITS_GROUP = "goes to the end of its group"
ON_FIFO = "--queue t.fifo --table records --consumer ids.json"


def test_a_plan_says_what_goes_to_the_end_of_its_fifo_group(receiver: Receiver, stack: Stack) -> None:
    _, dead = stack.queues("t", ".fifo")
    for key in ("first", "second"):
        stack.bury(key, url=dead)
    line = f"dlq redrive {ON_FIFO} --dlq {dead}"
    assert END_OF_ITS_GROUP not in receiver(line).said, "the group goes as a whole"
    assert END_OF_ITS_GROUP in receiver(f"{line} --limit 1").said
    assert END_OF_ITS_GROUP in receiver(f"dlq resend {ON_FIFO} --dlq {dead} --key first --body body.json").said
    assert receiver(f"dlq archive {ON_FIFO} --dlq {dead} --archive archive --yes").code == Exit.OK
    for restored in ("", "--to-dlq"):
        assert END_OF_ITS_GROUP in receiver(f"{line} --archive archive --from-archive {restored}").said


def test_on_a_standard_queue_nothing_has_a_place_to_lose(receiver: Receiver) -> None:
    assert END_OF_ITS_GROUP not in receiver.on(f"{RESEND.replace('new', 'body.json')}").said


def test_the_key_of_a_resent_message_leads_back_to_its_dead_letter(receiver: Receiver, stack: Stack) -> None:
    (letter,) = (each["MessageId"] for each in stack.looked_at() if each["Body"] == "flaky")
    key = receiver.on(f"dlq resend --key {FLAKY} --body body.json --because 'a typo' --yes --json").json["new_key"]
    told = receiver.on(f"trace {key} --json").json
    events = {each["source"]: each["text"] for each in told["events"]}
    assert f"resent from {FLAKY}" in events["history"]
    assert re.fullmatch(rf"{FLAKY} is RESENT as {key}, by arn:\S+: a typo", events["resend"])
    assert receiver.on(f"trace {FLAKY} --json").json["record"]["resend"]["dead_letter"] == letter
