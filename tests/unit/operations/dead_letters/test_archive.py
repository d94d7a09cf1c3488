"""The archive: what it keeps of a dead letter, what in it is none, and how it comes back from there."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.operations.dead_letters import archive as archives
from idempotent_receiver.operations.dead_letters.triage import Verdict
from tests.unit.operations.dead_letters.bank import (
    HOLD_SECONDS,
    Bank,
    both_kinds,
    in_balance,
    leftovers,
    settle,
    throttled,
)
from tests.unit.operations.dead_letters.bucket import TOLD, Bucket, archived, archived_leftovers, from_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTES = {"messageId": "notes", "receiptHandle": "", "attributes": {}, "messageAttributes": {}, "md5OfBody": ""}
"""All that makes a message but its body."""


def test_the_archive_tells_the_message_its_reason_its_record_who_and_when() -> None:
    bank = Bank()
    id = bank.send("permanent")
    bank.deliver()
    bucket = Bucket(bank)

    archived(bank, bucket)

    (told,) = bucket.documents()
    message, record = told.pop("message"), told.pop("record")
    assert (json.loads(message["body"]), message["eventSourceARN"]) == ({"name": "permanent"}, bank.queue.arn)
    assert (record["id"], record["status"], "data" in record) == (id, "FAILED", False)
    assert told.pop("why").startswith("it failed for good: ")
    assert told == {
        "key": id,
        "source": bank.queue.arn,
        "verdict": "PERMANENT",
        "reason": "permanent cannot be posted",
        "error_type": "PermanentError",
        "group": f"PermanentError@{Bank.__module__}._post",
        **TOLD,
    }


def test_what_s3_does_not_take_stays_and_all_else_is_archived() -> None:
    bank = leftovers()
    bucket = Bucket(bank)
    refused = bank.dead.messages[1].id
    put = bucket.put_object

    def refuse(**given: Any) -> Any:
        if refused in given["Key"]:
            raise ClientError({"Error": {"Code": "SlowDown"}}, "PutObject")
        return put(**given)

    bucket.put_object = refuse  # type: ignore[method-assign]
    with pytest.raises(ClientError):
        archived(bank, bucket)
    assert ([each.id for each in bank.dead.messages], len(bucket.objects)) == ([refused], 7)


@pytest.mark.parametrize(
    "stray",
    [
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps({"message": {**NOTES, "body": 1}}).encode(),
        json.dumps({"message": {**NOTES, "body": "renamed", "messageId": "another"}}).encode(),
        *(
            json.dumps({"message": {**NOTES, "body": "b", **wrong}}).encode()
            for wrong in (
                {"messageAttributes": {"a": 5}},
                {"messageAttributes": {"a": {"stringValue": 5}}},
                {"messageAttributes": {"a": {"stringValue": "v", "dataType": ["String"]}}},
                {"messageAttributes": {"a": {"binaryValue": "abc"}}},
                {"attributes": {"SequenceNumber": 5}},
                {"attributes": 5},
            )
        ),
    ],
)
def test_a_stray_object_stops_nothing_and_is_named(stray: bytes) -> None:
    bank, bucket = archived_leftovers()
    bucket.objects["dead/notes.json"] = stray

    run = from_archive(bank, bucket)

    assert (run.summary.done, run.summary.left, len(bank.dead.messages)) == ({"restored": 8}, [], 8)
    assert run.session.source.stray == ["s3://archive/dead/notes.json"]  # type: ignore[attr-defined]
    assert bucket.objects == {"dead/notes.json": stray}


def test_what_another_redrive_has_taken_meanwhile_is_none_of_this_ones() -> None:
    _, bucket = archived_leftovers()
    archive = bucket.archive()
    paginate = bucket.paginate

    def stale(**given: Any) -> Iterator[dict[str, Any]]:
        for page in paginate(**given):
            bucket.objects.pop(page["Contents"][0]["Key"])
            yield page

    bucket.paginate = stale  # type: ignore[method-assign]
    taken = archive.take()
    assert {each["MessageId"] for each in taken} == {each["message"]["messageId"] for each in bucket.documents()}
    assert 0 < len(taken) < 8


def test_to_count_what_was_not_taken_yet_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round ends with so many bytes of bodies, and all rounds together take each dead letter once."""
    monkeypatch.setattr(archives, "MAX_BYTES_A_ROUND", 1)
    bank, bucket = archived_leftovers()
    archive = bucket.archive()
    assert [(len(archive.take()), archive.unseen()) for _ in range(3)] == [(4, 4), (4, 0), (0, 0)]
    run = from_archive(bank, bucket)
    assert (run.summary.done, run.summary.left, bucket.objects) == ({"restored": 8}, [], {})


@pytest.mark.parametrize("to_dlq", [True, False])
def test_a_fifo_archive_comes_back_in_order_however_many_rounds_it_takes(
    monkeypatch: pytest.MonkeyPatch, *, to_dlq: bool
) -> None:
    """S3 lists objects in another order. A round ends with so many bytes of bodies: here, it has four dead letters."""
    monkeypatch.setattr(archives, "MAX_BYTES_A_ROUND", 1)
    bank = throttled(40, fifo=True, groups=2)
    bucket = Bucket(bank)
    names = sorted(bank.bodies(bank.dead))
    archived(bank, bucket)

    run = from_archive(bank, bucket, to_dlq=to_dlq)

    queue = bank.dead if to_dlq else bank.queue
    back = [json.loads(each.sent["MessageBody"])["name"] for each in queue.messages]
    assert (run.summary.left, sorted(back)) == ([], sorted(names))
    for group in (0, 1):
        assert [each for each in back if int(each[-2:]) % 2 == group] == names[group::2]


# From the archive.


@both_kinds
def test_what_is_archived_comes_back_to_the_dead_letter_queue_as_it_was(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    bucket = Bucket(bank)

    def dead() -> Counter[tuple[object, ...]]:
        with bank.session() as session:
            taken = session.take()
        return Counter((each.verdict, each.reason, each.dead_letter.key, each.dead_letter.since_ms) for each in taken)

    before = dead()
    assert archived(bank, bucket).summary.done == {"archived": 8}
    assert (bank.dead.messages, len(bucket.objects)) == ([], 8)
    assert from_archive(bank, bucket).summary.done == {"restored": 8}
    assert (bucket.objects, dead()) == ({}, before)
    settle(bank)
    in_balance(bank)


@both_kinds
def test_from_the_archive_it_goes_back_to_the_queue_under_its_old_key_unless_it_is_done(fifo: bool) -> None:
    bank, bucket = archived_leftovers(fifo=fifo)
    summary = from_archive(bank, bucket, to_dlq=False, include_permanent=True).summary
    assert (summary.done, [each.verdict for each in summary.left]) == ({"moved": 6, "dropped": 1}, ["CONFLICT"])
    bank.deliver()
    assert [each["verdict"] for each in bucket.documents()] == ["CONFLICT"]
    bucket.objects.clear()
    bank.send("conflict")
    assert bank.done == Counter(["done", "flaky-0", "flaky-1", "flaky-2", "throttled", "permanent"])


def test_what_was_done_after_it_was_archived_is_dropped() -> None:
    """Its archiving could not delete it, so it was redriven meanwhile."""
    bank = leftovers()
    bucket = Bucket(bank)
    bank.sqs.undeletable.add(bank.dead.url)
    assert {"archiving it again replaces it" in each.why for each in archived(bank, bucket).summary.undeleted} == {True}
    bank.sqs.undeletable.clear()
    settle(bank)

    summary = from_archive(bank, bucket, to_dlq=False, include_permanent=True).summary

    assert summary.done == {"moved": 1, "dropped": 6}, "garbage failed again, and may fail once more"
    settle(bank)
    assert bank.done == Counter(["done", "flaky-0", "flaky-1", "flaky-2", "throttled", "permanent"])


@pytest.mark.parametrize("to_dlq", [True, False])
def test_what_came_from_another_queue_goes_back_with_force_alone_and_is_this_consumers_then(to_dlq: bool) -> None:
    """The table here does not know what it did there."""
    bank = Bank()
    bank.send("elsewhere")
    bank.kill_by_receives(handle=False)
    bank.dead.messages[0].source = "arn:aws:sqs:us-east-1:123456789012:others"
    bucket = Bucket(bank)
    with bank.session() as session:
        bucket.archive().put(*session.take())
    bank.dead.messages.clear()

    (left,) = from_archive(bank, bucket, to_dlq=to_dlq).summary.left
    assert (left.verdict, "--force" in left.why, len(bucket.objects)) == (Verdict.OTHER_QUEUE, True, 1)

    assert from_archive(bank, bucket, to_dlq=to_dlq, force=True).summary.left == []
    assert (bucket.objects, len(bank.dead.messages), len(bank.queue.messages)) == ({}, to_dlq, not to_dlq)
    settle(bank)
    assert bank.done == Counter(["elsewhere"])


def test_a_group_comes_back_in_its_order() -> None:
    bank = Bank(fifo=True, at_once=False)
    for number in range(12):
        bank.send(f"flaky-{number}", group="one")
        bank.deliver()
    before = [each.sent["MessageBody"] for each in bank.dead.messages]
    bucket = Bucket(bank)
    archived(bank, bucket)
    bank.clock.sleep(HOLD_SECONDS + 1)

    from_archive(bank, bucket)

    assert [each.sent["MessageBody"] for each in bank.dead.messages] == before
