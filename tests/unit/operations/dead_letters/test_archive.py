"""The archive: what it keeps of a dead letter, and what in it is not one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from idempotent_receiver.operations.dead_letters.ends import archive_ends

from idempotent_receiver.operations.dead_letters import archive as archives
from idempotent_receiver.operations.dead_letters.archive import NotArchived
from tests.unit.operations.dead_letters.bank import Bank, leftovers, throttled
from tests.unit.operations.dead_letters.bucket import Bucket
from tests.unit.operations.dead_letters.test_ends import BY, archived, archived_leftovers, gone_through, restored, taken

if TYPE_CHECKING:
    from collections.abc import Iterator
NOTES = {"messageId": "notes", "receiptHandle": "", "attributes": {}, "messageAttributes": {}, "md5OfBody": ""}


def test_the_archive_tells_the_message_its_reason_its_record_who_when_and_why() -> None:
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
        "operator": BY["operator"],
        "archived_for": BY["reason"],
        "archived_at": BY["at"],
    }
    bank.sqs.send_message(QueueUrl=bank.dead.url, MessageBody="{}")
    bucket.archive().put(taken(bank))
    (unkeyed,) = (each for each in bucket.documents() if each["verdict"] == "FOREIGN")
    assert unkeyed["record"] is None


def test_no_reason_is_told_where_none_is_given() -> None:
    bank = throttled(1)
    bucket = Bucket(bank)
    gone_through(bank, archive_ends(bucket.archive(), **{**BY, "reason": None}))
    (told,) = bucket.documents()
    assert (told["operator"], "archived_for" in told) == (BY["operator"], False)


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


@pytest.mark.parametrize("broken", [b"[]", b"\xff", json.dumps({"message": {**NOTES, "body": 1}}).encode()])
def test_what_is_not_ours_in_the_archive_is_named_and_nothing_is_restored(broken: bytes) -> None:
    bank, bucket = archived_leftovers()
    bucket.objects["dead/notes.json"] = broken

    with pytest.raises(NotArchived, match=r"s3://archive/dead/notes\.json is no archived dead letter"):
        restored(bank, bucket)
    assert (len(bucket.objects), bank.dead.messages) == (9, [])

    del bucket.objects["dead/notes.json"]
    name = next(iter(bucket.objects))
    bucket.objects["dead/renamed.json"] = bucket.objects.pop(name)
    with pytest.raises(NotArchived, match=rf"dead/renamed\.json holds the dead letter {name[5:-5]}: rename it"):
        restored(bank, bucket)


def test_what_another_restoration_has_taken_meanwhile_is_none_of_this_ones() -> None:
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


def test_two_dead_letters_of_one_key_are_both_restored_in_whichever_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was restored comes up again in the archive, so the second is not the first that failed again."""
    monkeypatch.setattr(archives, "MAX_BYTES_A_ROUND", 1)
    bank, bucket = archived_leftovers()
    run = restored(bank, bucket)
    assert (run.summary.done, run.summary.left, bucket.objects) == ({"restored": 8}, [], {})
